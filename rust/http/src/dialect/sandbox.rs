//! Answers of code sandboxes that speak SandboxFusion's `/run_code`: what became of one run.
//!
//! - A fault of the program (it hung, crashed, did not compile) is an answer; a failure of the
//!   sandbox is an error: no program is wrong because a sandbox failed.
//! - An answer that contradicts itself, or lacks a field that decides, is an error too.

use crate::quote::{quoted, truncated};
use crate::raw_json::{Raw, fields, number, object, text};

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxRun {
    pub end: RunEnd,
    /// Duration by the sandbox's clock; 0 where that does not say.
    pub seconds: f64,
    pub stdout: String,
    pub stderr: String,
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It ended by itself, with this status.
    Exit(i64),
    /// The sandbox ended it: its time was up.
    TimeLimit,
    /// It does not compile; `stderr` is the compiler's.
    NotCompiled,
    /// The same, as the compiler took too long.
    CompilerTimeLimit,
    /// The answer is longer than anybody reads: it printed that much.
    TooLong,
}

/// Why an answer is not a run.
#[derive(Debug, PartialEq, Eq)]
pub enum NoRun {
    /// The sandbox says that it failed.
    Failed(String),
    /// It is not in this protocol.
    Unreadable(String),
}

impl SandboxRun {
    /// One whose answer was too long to be read.
    pub const TOO_LONG: Self =
        Self { end: RunEnd::TooLong, seconds: 0.0, stdout: String::new(), stderr: String::new() };
}

/// The run in the body of a response.
pub fn read(body: &[u8]) -> Result<SandboxRun, NoRun> {
    let shown = || quoted(&String::from_utf8_lossy(body));
    let unreadable = |what: &str| NoRun::Unreadable(format!("{what} in {}", shown()));
    let [status, message, compiled, ran] = fields(body, ["status", "message", "compile_result", "run_result"])
        .map_err(|error| {
            if error.is_data() {
                unreadable("no run of a program")
            } else {
                unreadable(&format!("invalid JSON ({error})"))
            }
        })?;
    let status = text(status).ok_or_else(|| unreadable("no status"))?;
    let twice = |error: serde_json::Error| unreadable(&error.to_string());
    let (compiled, ran) = (RunStep::of(compiled).map_err(twice)?, RunStep::of(ran).map_err(twice)?);
    let broken =
        |step: &Option<RunStep<'_>>| step.as_ref().is_some_and(|step| text(step.status).as_deref() == Some("Error"));
    if status == "SandboxError" || broken(&compiled) || broken(&ran) {
        let why = text(message).filter(|why| !why.trim().is_empty());
        let stderr = ran.as_ref().or(compiled.as_ref()).and_then(|step| text(step.stderr));
        let why = why.or(stderr).unwrap_or_default();
        return Err(NoRun::Failed(format!("SandboxError: {}", truncated(why.trim()))));
    }
    if status != "Success" && status != "Failed" {
        return Err(unreadable("an unknown status"));
    }
    if let Some(compiled) = compiled {
        match compiled.end() {
            Some(RunEnd::Exit(0)) => {}
            Some(RunEnd::Exit(_)) => return Ok(compiled.run(RunEnd::NotCompiled)),
            Some(_) => return Ok(compiled.run(RunEnd::CompilerTimeLimit)),
            None => return Err(unreadable("no end of the compiler")),
        }
    }
    let ran = ran.ok_or_else(|| unreadable("no run_result"))?;
    if ran.stdout.is_some() && text(ran.stdout).is_none() {
        return Err(unreadable("an output that is no text"));
    }
    let end = ran.end().ok_or_else(|| unreadable("no end of the run"))?;
    if (status == "Success") != (end == RunEnd::Exit(0)) {
        return Err(unreadable("a status that contradicts its run_result"));
    }
    Ok(ran.run(end))
}

/// A run of the compiler or of the program.
struct RunStep<'a> {
    status: Raw<'a>,
    return_code: Raw<'a>,
    seconds: Raw<'a>,
    stdout: Raw<'a>,
    stderr: Raw<'a>,
}

impl<'a> RunStep<'a> {
    /// Reads a step, which may be missing.
    fn of(given: Raw<'a>) -> serde_json::Result<Option<Self>> {
        let Some(given) = given.filter(|given| given.get().starts_with('{')) else { return Ok(None) };
        let [status, return_code, seconds, stdout, stderr] =
            object(Some(given), ["status", "return_code", "execution_time", "stdout", "stderr"])?;
        Ok(Some(Self { status, return_code, seconds, stdout, stderr }))
    }

    /// Returns its end; none where the answer does not say.
    fn end(&self) -> Option<RunEnd> {
        match text(self.status)?.as_str() {
            "TimeLimitExceeded" => Some(RunEnd::TimeLimit),
            "Finished" => self.return_code?.get().parse().ok().map(RunEnd::Exit),
            _ => None,
        }
    }

    fn run(&self, end: RunEnd) -> SandboxRun {
        let seconds = number(self.seconds);
        SandboxRun {
            end,
            seconds: if seconds > 0.0 { seconds } else { 0.0 },
            stdout: text(self.stdout).unwrap_or_default(),
            stderr: text(self.stderr).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step(status: &str, code: &str) -> String {
        format!(
            r#"{{"status": "{status}", "execution_time": 0.25, "return_code": {code}, "stdout": "5\n", "stderr": "why"}}"#
        )
    }

    fn answer(status: &str, compile: &str, run: &str) -> Result<SandboxRun, NoRun> {
        read(format!(r#"{{"status": "{status}", "message": "", "compile_result": {compile}, "run_result": {run}, "files": {{}}}}"#).as_bytes())
    }

    fn end(status: &str, compile: &str, run: &str) -> RunEnd {
        answer(status, compile, run).unwrap().end
    }

    #[test]
    fn program_faults_are_answers() {
        let (good, bad, slow) = (step("Finished", "0"), step("Finished", "1"), step("TimeLimitExceeded", "null"));
        let ran = answer("Success", "null", &good).unwrap();
        assert_eq!(
            (ran.end, ran.seconds, ran.stdout.as_str(), ran.stderr.as_str()),
            (RunEnd::Exit(0), 0.25, "5\n", "why")
        );
        assert_eq!(end("Success", &good, &good), RunEnd::Exit(0));
        assert_eq!(end("Failed", "null", &bad), RunEnd::Exit(1));
        assert_eq!(end("Failed", "null", &step("Finished", "-9")), RunEnd::Exit(-9));
        assert_eq!(end("Failed", "null", &slow), RunEnd::TimeLimit);
        assert_eq!(end("Failed", &bad, "null"), RunEnd::NotCompiled);
        assert_eq!(end("Failed", &slow, "null"), RunEnd::CompilerTimeLimit);
    }

    #[test]
    fn sandbox_failures_are_not_answers() {
        let failed = |answer: Result<SandboxRun, NoRun>| match answer {
            Err(NoRun::Failed(why)) => why,
            other => panic!("{other:?}"),
        };
        let error = r#"{"status": "Error", "stderr": "no cgroup"}"#;
        assert_eq!(failed(answer("SandboxError", "null", error)), "SandboxError: no cgroup");
        assert_eq!(failed(answer("Failed", error, "null")), "SandboxError: no cgroup");
        assert_eq!(failed(read(br#"{"status": "SandboxError", "message": "full"}"#)), "SandboxError: full");
        let (good, bad) = (step("Finished", "0"), step("Finished", "1"));
        for contradiction in [
            answer("Success", "null", &bad),
            answer("Failed", "null", &good),
            answer("Success", "null", "null"),
            answer("Success", "null", &step("Finished", "null")),
            answer("Success", "null", &step("Gone", "0")),
            answer("Done", "null", &good),
            answer("Success", "null", &good.replace(r#""5\n""#, "5")),
            answer("Success", "null", &good.replace("\"stdout\"", "\"stdout\": \"4\", \"stdout\"")),
            read(b"[1]"),
            read(b"{}"),
            read(b"<html>"),
            read(b""),
        ] {
            assert!(matches!(contradiction, Err(NoRun::Unreadable(_))), "{contradiction:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(body in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(read(&body).is_err());
        }
    }
}
