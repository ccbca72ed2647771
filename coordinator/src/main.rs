//! `cohort`: the coordinator of a run, and the tools around it.

fn main() -> std::process::ExitCode {
    match coordinator::commands::run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
