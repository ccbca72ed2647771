//! A program in the background, with everything it prints.

use std::{
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
};

use crate::wait::wait_until;

/// Lines shown when a test fails.
const SHOWN: usize = 60;

/// Killed when dropped. In the test's own process group, so that Ctrl-C ends it with the test.
pub struct Process {
    name: String,
    child: Child,
    id: u32,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    pub fn start(
        name: &str,
        program: &Path,
        configure: impl FnOnce(&mut std::process::Command),
    ) -> Result<Self> {
        let mut command = std::process::Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        configure(&mut command);
        let mut child = Command::from(command)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let id = child.id().with_context(|| format!("{name} ended at once"))?;
        let lines = Arc::default();
        collect(child.stdout.take(), &lines);
        collect(child.stderr.take(), &lines);
        Ok(Self { name: name.to_owned(), child, id, lines })
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// All lines so far, of both streams.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first line in which `find` finds something.
    pub async fn wait_for_line<T>(
        &mut self,
        what: &str,
        limit: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let what = format!("{} to say {what}", self.name);
        wait_until(&what, limit, async || {
            // Looked at before the lines: what was said just before the end counts.
            let ended = self.child.try_wait()?;
            match (self.lines().iter().find_map(|line| find(line)), ended) {
                (Some(found), _) => Ok(Some(found)),
                (None, None) => Ok(None),
                (None, Some(status)) => bail!("{} ended ({status}):\n{}", self.name, self.lines().join("\n")),
            }
        })
        .await
    }

    /// Asks it to finish, as Ctrl-C does.
    pub fn interrupt(&self) {
        xtask::process::interrupt(self.id);
    }

    /// Asks it to finish, as the system does when it goes down.
    pub fn terminate(&self) {
        xtask::process::terminate(self.id);
    }

    /// Ends it on the spot, as `kill -9` does.
    pub async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// # Errors
    /// When it has ended otherwise than well, with what it said.
    pub fn ensure_well(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) if !status.success() => {
                bail!("{} ended ({status}):\n{}", self.name, self.lines().join("\n"))
            }
            _ => Ok(()),
        }
    }

    pub async fn wait_for_end(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        wait_until(&what, limit, async || Ok(self.child.try_wait()?)).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The test's output, which is shown when it fails.
        let lines = self.lines();
        eprintln!("--- {}, the last lines:", self.name);
        lines.iter().skip(lines.len().saturating_sub(SHOWN)).for_each(|line| eprintln!("{line}"));
    }
}

fn collect(stream: Option<impl AsyncRead + Unpin + Send + 'static>, lines: &Arc<Mutex<Vec<String>>>) {
    let Some(stream) = stream else { return };
    let lines = lines.clone();
    tokio::spawn(async move {
        let mut reader = BufReader::new(stream).lines();
        while let Ok(Some(line)) = reader.next_line().await {
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
}
