//! Programs that a sandbox runs: a request a case, one after the other, and the verdict made here.
//!
//! - Expected values stay here: a request has the program and its input.
//! - A fault of the program fails the case; what the sandbox could not do fails the call, and no
//!   program is wrong by it. No program can choose that its call fails.
//! - The time for all cases counts their running time, by the sandbox's clock: waiting is not a
//!   program's fault.

use guerdon_core::outcome::{Cell, Failure};
use guerdon_core::report::Report;
use guerdon_wire::text::{RawText, TextKind};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::body::Text;
use crate::compound::ask::{Asker, NO_TEXTS};
use crate::compound::case_rules::CaseRules;
use crate::compound::outputs::{Outputs, cut, printable, shown};
use crate::compound::unit::{Cells, broken};
use crate::dialect::sandbox::{RunEnd, SandboxRun};
use crate::raw_json::text;

/// A program as its column has it: two texts of it, or the reason why there is none.
#[derive(Deserialize)]
struct Program<'a> {
    /// Source for cases that read and print.
    #[serde(borrow, default)]
    source: Option<&'a RawValue>,
    /// Source for cases that call its functions: the line that does so, with the program in it.
    #[serde(borrow, default)]
    calls: Option<&'a RawValue>,
    /// It is the completion's fault.
    #[serde(default)]
    fault: Option<String>,
    /// It is nobody's here.
    #[serde(default)]
    error: Option<String>,
}

/// The cases of a sample as their column has them.
#[derive(Deserialize)]
struct Cases<'a> {
    #[serde(borrow, default)]
    cases: Vec<Case<'a>>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Deserialize)]
struct Case<'a> {
    /// Input of the program, or the call.
    #[serde(borrow)]
    stdin: &'a RawValue,
    /// Any of these is right.
    #[serde(borrow)]
    expected: Vec<&'a RawValue>,
    /// It calls a function.
    #[serde(default)]
    calls: bool,
}

/// Time that a case may run.
#[derive(Clone, Copy)]
struct CaseTime {
    seconds: f64,
    /// The program's other cases left it less than an interpreter may take to begin.
    shortened: bool,
}

/// Result of a run for its case.
enum CaseEnd {
    Passed,
    /// Why it is not passed.
    Fault(String),
    /// Why no case of this program is.
    ProgramFault(String),
}

/// The columns of a call.
const PROGRAM: usize = 0;
const CASES: usize = 1;
/// More than these the reason only counts.
const MOST_REASONS: usize = 5;
/// Time that an interpreter may take to reach its program.
const ENTER_SECONDS: f64 = 1.0;
/// Beginning of a sandbox's substitute for an output that is not UTF-8.
const UNDECODED: &str = "[DecodeError]";
const TIME_IS_UP: &str = "the time for all cases was up";

/// Runs the cases until the score is certain.
pub async fn ask(asker: &Asker<'_>, rules: &CaseRules) -> (Result<Cells, Failure>, Report) {
    let columns = (asker.column(PROGRAM), asker.column(CASES));
    let (Some(program), Some(cases)) = columns else { return (Err(broken(NO_TEXTS)), Report::default()) };
    let (Ok(program), Ok(cases)) =
        (serde_json::from_str::<Program<'_>>(&program), serde_json::from_str::<Cases<'_>>(&cases))
    else {
        return (Err(broken(NO_TEXTS)), Report::default());
    };
    if let Some(fault) = program.fault {
        return judged(0.0, 0, 0, &fault);
    }
    if let Some(why) = program.error.or(cases.error) {
        return (Err(broken(&why)), Report::default());
    }
    let count = cases.cases.len();
    let (mut faults, mut used) = (Vec::new(), 0.0);
    let at_first = rules.seconds_for(used, count).unwrap_or_default();
    for (place, case) in cases.cases.iter().enumerate() {
        let source = if case.calls { program.calls } else { program.source };
        let Some(source) = source else { return (Err(broken(NO_TEXTS)), Report::default()) };
        let end = match rules.seconds_for(used, count - place) {
            None => CaseEnd::Fault(TIME_IS_UP.to_owned()),
            Some(seconds) => {
                let time = CaseTime { seconds, shortened: seconds < at_first.min(ENTER_SECONDS) };
                match run(asker, rules, source, case, time).await {
                    Ok((end, ran)) => {
                        used += ran;
                        end
                    }
                    Err(failure) => {
                        let reason = format!("case {place}: {}", failure.reason);
                        return (Err(Failure { reason, ..failure }), Report::default());
                    }
                }
            }
        };
        match end {
            CaseEnd::Passed => faults.push(String::new()),
            CaseEnd::Fault(fault) => faults.push(fault),
            CaseEnd::ProgramFault(fault) => return judged(0.0, 0, count, &fault),
        }
        if !rules.share && faults.last().is_some_and(|fault| !fault.is_empty()) {
            break;
        }
    }
    let passed = faults.iter().filter(|fault| fault.is_empty()).count();
    #[expect(clippy::cast_precision_loss, reason = "cases of a program")]
    let share = passed as f64 / count.max(1) as f64;
    let score = if rules.share { share } else { f64::from(u8::from(passed == count && count > 0)) };
    judged(score, passed, count, &reason_of(&faults))
}

/// Runs one case; with how long that took.
async fn run(
    asker: &Asker<'_>,
    rules: &CaseRules,
    source: &RawValue,
    case: &Case<'_>,
    time: CaseTime,
) -> Result<(CaseEnd, f64), Failure> {
    let seconds = time.seconds;
    let nonce = case.calls.then(|| format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)));
    // A call's nonce is the first line of the input.
    let stdin = nonce.as_ref().map(|nonce| format!("\"{nonce}\\n{}", &case.stdin.get()[1..]));
    let stdin = stdin.as_deref().unwrap_or_else(|| case.stdin.get());
    let source = if case.calls { format!("{}{}", rules.callers, &source.get()[1..]) } else { source.get().to_owned() };
    let limit = format!("{seconds:.3}");
    let column = |column: usize, _| {
        let json = *[&*source, stdin, &limit].get(column)?;
        Some(Text { raw: RawText { kind: TextKind::Ascii, bytes: json.as_bytes() }, json: true })
    };
    let member = asker.queue.spec.members.first().ok_or_else(|| broken(NO_TEXTS))?;
    let template = &member.body;
    let body = |_: Option<&[u8]>| Some(template.fill(&template.parts(1, &column)?, &column));
    let answer = asker.send(0, &body).await?;
    let ran = answer.run.ok_or_else(|| broken(NO_TEXTS))?;
    if case.calls && !came_to_program(&ran, time) {
        return Err(broken(&lost_before(&ran)));
    }
    // The sandbox's time to stop a program does not count.
    let took = if ran.end == RunEnd::TimeLimit { seconds } else { ran.seconds.min(seconds) };
    Ok((case_end(rules, case, nonce.as_deref(), &ran, seconds), took))
}

fn case_end(rules: &CaseRules, case: &Case<'_>, nonce: Option<&str>, ran: &SandboxRun, seconds: f64) -> CaseEnd {
    let expected: Vec<String> = case.expected.iter().filter_map(|one| text(Some(one))).collect();
    let fault = match ran.end {
        RunEnd::NotCompiled => return CaseEnd::ProgramFault(not_compiled(&ran.stderr)),
        RunEnd::CompilerTimeLimit => {
            let fault = format!("it does not compile: it did not end within {} s", brief(rules.compile_timeout));
            return CaseEnd::ProgramFault(fault);
        }
        RunEnd::TooLong => too_much(rules),
        _ if ran.stdout.len() > rules.max_output => too_much(rules),
        RunEnd::TimeLimit if nonce.is_some() => format!("no answer within {} s", brief(seconds)),
        RunEnd::TimeLimit => format!("it did not end within {} s", brief(seconds)),
        RunEnd::Exit(status) => match nonce {
            Some(nonce) => return returned(rules, &expected, nonce, status, &ran.stdout),
            None if status != 0 => exit_fault(status, &ran.stderr),
            None if expected.iter().any(|one| rules.outputs.matches(one, &ran.stdout)) => return CaseEnd::Passed,
            None => {
                let wanted = expected.first().map(|one| shown(one)).unwrap_or_default();
                format!("it printed {}, expected {wanted}", shown(&ran.stdout))
            }
        },
    };
    CaseEnd::Fault(fault)
}

/// Returns whether a process that makes a call came to its program: an earlier end is not its
/// fault.
///
/// - It says so, on its first line; but a sandbox drops all lines for a byte that is not UTF-8, and
///   has only a complaint in their place: whatever it has counts.
/// - One whose other cases left it no time for that has itself to blame.
fn came_to_program(ran: &SandboxRun, time: CaseTime) -> bool {
    ran.end == RunEnd::TooLong || (ran.end == RunEnd::TimeLimit && time.shortened) || !ran.stdout.trim().is_empty()
}

fn lost_before(ran: &SandboxRun) -> String {
    let how = match ran.end {
        RunEnd::Exit(status) => exit_fault(status, &ran.stderr),
        _ => "its time was up".to_owned(),
    };
    printable(&format!("the sandbox did not come to the program: {how}"))
}

/// Reads the value of a call: on the last line that begins with its nonce.
fn returned(rules: &CaseRules, expected: &[String], nonce: &str, status: i64, stdout: &str) -> CaseEnd {
    let line = stdout.rsplit('\n').find_map(|line| line.strip_prefix(nonce));
    let answer = line.filter(|_| status == 0).and_then(|line| line.trim().split_once(' '));
    let fault = match answer {
        Some(("value", value)) if expected.iter().any(|one| same_value(rules.outputs, one, value)) => {
            return CaseEnd::Passed;
        }
        Some(("value", value)) => {
            let wanted = expected.first().map(|one| cut(one, 80)).unwrap_or_default();
            format!("it returned {}, expected {wanted}", cut(value, 80))
        }
        Some(("fault", why)) => serde_json::from_str(why).unwrap_or_else(|_| "what it returned is no data".to_owned()),
        _ if stdout.starts_with(UNDECODED) => format!("it printed no text: {}", shown(stdout)),
        _ if status < 0 => format!("its process ended by {}", signal_name(-status)),
        _ => format!("its process ended with exit status {status}"),
    };
    CaseEnd::Fault(cut(&fault, 400))
}

/// Values are compared as texts in their one form, in which each number is a token.
fn same_value(rule: Outputs, expected: &str, value: &str) -> bool {
    if rule == Outputs::Numbers { rule.matches(expected, value) } else { expected == value }
}

fn too_much(rules: &CaseRules) -> String {
    format!("it printed more than {} bytes", rules.max_output)
}

fn exit_fault(status: i64, stderr: &str) -> String {
    if status < 0 {
        return format!("it was ended by {}", signal_name(-status));
    }
    let last = stderr.trim().rsplit('\n').next().unwrap_or_default().trim();
    let last: String = last.chars().take(300).collect();
    format!("exit status {status}{}{last}", if last.is_empty() { "" } else { ": " })
}

fn not_compiled(stderr: &str) -> String {
    let lines = || stderr.lines().filter(|line| !line.trim().is_empty());
    let first = lines().find(|line| line.contains("error")).or_else(|| lines().next()).unwrap_or("the compiler failed");
    format!("it does not compile: {}", first.chars().take(300).collect::<String>())
}

/// The signals that end programs, as reasons name them.
fn signal_name(number: i64) -> String {
    let known = match number {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {number}"),
    };
    known.to_owned()
}

/// Seconds with two digits.
fn brief(seconds: f64) -> String {
    format!("{seconds:.1e}").parse::<f64>().map_or_else(|_| seconds.to_string(), |rounded| rounded.to_string())
}

/// Returns for each judged case the reason why it did not pass; nothing where it is.
fn reason_of(faults: &[String]) -> String {
    let failed = || faults.iter().enumerate().filter(|(_, fault)| !fault.is_empty());
    let mut reasons: Vec<String> =
        failed().take(MOST_REASONS).map(|(place, fault)| format!("case {place}: {fault}")).collect();
    let more = failed().count().saturating_sub(MOST_REASONS);
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
    reasons.join("; ")
}

fn judged(score: f64, passed: usize, cases: usize, reason: &str) -> (Result<Cells, Failure>, Report) {
    let mut report = Report::default();
    #[expect(clippy::cast_precision_loss, reason = "cases of a program")]
    let counts = (passed as f64, cases as f64);
    report.add(0, "passed", counts.0);
    report.add(0, "cases", counts.1);
    report.add(0, "reason", printable(reason));
    report.add(0, "isolation", "remote");
    (Ok(vec![Cell::Value(score)]), report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compound::case_rules::tests::rules;

    #[test]
    fn reasons_say_which_cases_and_why() {
        let faults = ["", "a", "b", "", "c", "d", "e", "f", "g"].map(str::to_owned);
        assert_eq!(reason_of(&faults), "case 1: a; case 2: b; case 4: c; case 5: d; case 6: e; and 2 more");
        assert_eq!(reason_of(&faults[..1]), "");
        assert_eq!(exit_fault(-9, "x"), "it was ended by SIGKILL");
        assert_eq!(exit_fault(-60, ""), "it was ended by signal 60");
        assert_eq!(exit_fault(1, "Traceback\nValueError: no \n"), "exit status 1: ValueError: no");
        assert_eq!(not_compiled("in file\na.cpp:1: error: x\n"), "it does not compile: a.cpp:1: error: x");
        assert_eq!(brief(12.34), "12");
        assert_eq!(brief(0.5), "0.5");
        assert_eq!(brief(10.0), "10");
    }

    #[test]
    fn end_before_the_program_is_not_its_fault() {
        let ran =
            |end, stdout: &str| SandboxRun { end, seconds: 0.0, stdout: stdout.to_owned(), stderr: "no".to_owned() };
        let (whole, rest) = (CaseTime { seconds: 2.0, shortened: false }, CaseTime { seconds: 0.05, shortened: true });
        assert!(came_to_program(&ran(RunEnd::Exit(1), "n1 ready\n"), whole));
        assert!(came_to_program(&ran(RunEnd::Exit(0), "[DecodeError] 'utf-8' codec can't decode"), whole));
        assert!(came_to_program(&ran(RunEnd::TooLong, ""), whole));
        assert!(!came_to_program(&ran(RunEnd::Exit(1), "\n"), whole));
        assert!(!came_to_program(&ran(RunEnd::TimeLimit, ""), whole));
        assert!(came_to_program(&ran(RunEnd::TimeLimit, ""), rest));
        assert!(!came_to_program(&ran(RunEnd::Exit(1), ""), rest));
        let why = lost_before(&ran(RunEnd::Exit(1), ""));
        assert_eq!(why, "the sandbox did not come to the program: exit status 1: no");
        assert!(lost_before(&ran(RunEnd::TimeLimit, "")).ends_with("its time was up"));
    }

    #[test]
    fn an_answer_to_a_call_has_its_nonce() {
        let expected = ["[ 1 ]".to_owned(), "1".to_owned()];
        let fault =
            |status, stdout: &str| match returned(&rules(Outputs::Exact, false), &expected, "n1", status, stdout) {
                CaseEnd::Passed => String::new(),
                CaseEnd::Fault(fault) | CaseEnd::ProgramFault(fault) => fault,
            };
        assert_eq!(fault(0, "\nn1 value 1\n"), "");
        assert_eq!(fault(0, "\nn1 value [ 1 ]\n"), "");
        assert_eq!(fault(0, "\nn2 value 1\n"), "its process ended with exit status 0");
        assert_eq!(fault(1, "\nn1 value 1\n"), "its process ended with exit status 1");
        assert_eq!(fault(-11, ""), "its process ended by SIGSEGV");
        assert_eq!(fault(0, "n1 value 2\n"), "it returned 2, expected [ 1 ]");
        assert_eq!(fault(0, "n1 fault \"ValueError: x\"\n"), "ValueError: x");
        assert_eq!(fault(0, "n1 fault x\n"), "what it returned is no data");
        assert_eq!(fault(0, "[DecodeError] 0xff"), "it printed no text: '[DecodeError] 0xff'");
    }
}
