//! TLS inside the coordinator: with the run's own authority, and with a certificate from files that are exchanged.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::PublicKeyData;
use reqwest::StatusCode;
use serde_json::json;
use sha2::{Digest, Sha256};
use tests::{
    Browser, Coordinator, LIMIT, alone, api::client_trusting, coordinator::OWN_AUTHORITY, runs::TinyRun,
    tab::test_id, wait_until, worker::NativeWorker,
};

#[tokio::test]
async fn a_native_worker_trains_over_tls_once_it_trusts_the_runs_own_authority() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: 10, snapshot_every: 5, ..TinyRun::default() };
    let coordinator = Coordinator::start(&run.toml(), &["--tls-self-signed"]).await?;
    ensure!(coordinator.url.starts_with("https://"), "{}", coordinator.url);
    let authority = coordinator.data().join(OWN_AUTHORITY);

    let mut stranger = NativeWorker::start(&coordinator.url, "stranger", &[])?;
    let says = |part: &'static str| move |line: &str| line.contains(part).then_some(());
    stranger.process.wait_for_line("what it lacks", LIMIT, says("name it with --authority")).await?;
    let plain = coordinator.url.replace("https:", "http:");
    let mut lost = NativeWorker::start(&plain, "without TLS", &[])?;
    lost.process.wait_for_line("the right link", LIMIT, says("use its https link")).await?;

    let path = authority.to_str().context("the folder's name is not UTF-8")?;
    coordinator.start_worker_with("knows it", &["--authority", path])?;
    coordinator.wait_for_finish().await?;
    ensure!(coordinator.checkpoint(10).is_file(), "its last snapshot has not come");

    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(coordinator.data().join("tls/authority.key"))?.permissions().mode();
        ensure!(mode & 0o777 == 0o600, "others may read the authority's key: {mode:o}");
    }
    Ok(())
}

#[tokio::test]
async fn without_tls_a_visitor_is_led_to_it() -> Result<()> {
    let coordinator = Coordinator::start("", &["--tls-self-signed"]).await?;
    let authority = coordinator.data().join(OWN_AUTHORITY);
    let client = client_trusting(&authority)?;
    let plain = coordinator.url.replace("https:", "http:");

    let answer = client.get(format!("{plain}/v1/run")).send().await?;
    ensure!(answer.status() == StatusCode::PERMANENT_REDIRECT, "{}", answer.status());
    let place = answer.headers().get("location").context("it leads nowhere")?.to_str()?;
    ensure!(place == format!("{}/v1/run", coordinator.url), "{place}");
    ensure!(client.get(place).send().await?.status() == StatusCode::OK);

    for origin in [&plain, &coordinator.url] {
        let page = client.get(format!("{origin}/trust")).send().await?.text().await?;
        ensure!(page.contains(&format!("href=\"{}/\"", coordinator.url)), "{page}");
        let installed = client.get(format!("{origin}/trust/authority.crt")).send().await?.text().await?;
        ensure!(installed == fs::read_to_string(&authority)?, "another authority than the one in use");
    }
    Ok(())
}

/// The first address is no place that browsers trust by itself, such as localhost is.
#[tokio::test]
async fn a_tab_has_webgpu_and_a_wake_lock_over_tls_and_trains() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: 1_000_000, snapshot_every: 5, ..TinyRun::default() };
    let arguments = ["--tls-self-signed", "--host", "cohort.test"];
    let coordinator = Coordinator::start(&run.toml(), &arguments).await?;
    let port = coordinator.url.rsplit_once(':').context("no port")?.1.to_owned();
    let key = fs::read_to_string(coordinator.data().join("tls/authority.key"))?;
    let trusted = format!("--ignore-certificate-errors-spki-list={}", key_hash(&key)?);
    let browser = Browser::start().await?;
    let tab = browser.tab_with(&["--host-resolver-rules=MAP cohort.test 127.0.0.1", &trusted]).await?;

    let asks = "return [isSecureContext, 'gpu' in navigator, 'wakeLock' in navigator]";
    tab.goto(&format!("http://cohort.test:{port}/trust")).await?;
    ensure!(tab.execute(asks, json!([])).await? == json!([false, false, false]), "not the case to be tried");
    tab.goto(&format!("https://cohort.test:{port}/?join=1&backend=cpu&name=phone")).await?;
    ensure!(tab.execute(asks, json!([])).await? == json!([true, true, true]));
    coordinator.wait_for_run("a snapshot of the tab", |run| run.snapshot_step.is_some()).await?;

    // The link without TLS leads to the same page.
    tab.goto(&format!("http://cohort.test:{port}/watch")).await?;
    tab.wait_for_text(&test_id("phase"), |text| !text.is_empty()).await?;
    let place = tab.execute("return location.href", json!([])).await?;
    ensure!(place == json!(format!("https://cohort.test:{port}/watch")), "{place}");
    tab.ensure_quiet_console().await
}

#[tokio::test]
async fn a_certificate_that_is_renewed_is_used_without_a_restart() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (certificate, key) = (folder.path().join("used.crt"), folder.path().join("used.key"));
    let renewed = folder.path().join("renewed.crt");
    write_certificate(&certificate, &key)?;
    write_certificate(&renewed, &folder.path().join("renewed.key"))?;
    let path = |path: &Path| path.to_str().map(str::to_owned).context("the folder's name is not UTF-8");
    let arguments = ["--tls-cert", &path(&certificate)?, "--tls-key", &path(&key)?];
    let coordinator = Coordinator::start("", &arguments).await?;
    let address = format!("{}/v1/run", coordinator.url);

    ensure!(client_trusting(&certificate)?.get(&address).send().await?.status() == StatusCode::OK);
    let after = client_trusting(&renewed)?;
    ensure!(after.get(&address).send().await.is_err(), "it trusts the first certificate");
    fs::copy(folder.path().join("renewed.key"), &key)?;
    fs::copy(&renewed, &certificate)?;
    wait_until("the renewed certificate", Duration::from_mins(1), async || {
        Ok(after.get(&address).send().await.is_ok().then_some(()))
    })
    .await
}

/// By which Chromium is told to trust an authority: SHA-256 of its public key.
fn key_hash(key_pem: &str) -> Result<String> {
    let public = rcgen::KeyPair::from_pem(key_pem)?.subject_public_key_info();
    Ok(STANDARD.encode(Sha256::digest(public)))
}

fn write_certificate(certificate: &Path, key: &Path) -> Result<()> {
    let pair = rcgen::KeyPair::generate()?;
    let signed = rcgen::CertificateParams::new(vec!["127.0.0.1".into()])?.self_signed(&pair)?;
    fs::write(certificate, signed.pem())?;
    fs::write(key, pair.serialize_pem())?;
    Ok(())
}
