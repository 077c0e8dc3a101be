//! Rules for judging programs that a sandbox runs, and the time of each of their cases.
//!
//! The time for all cases is a program's own: its running time, not its waiting time.

use crate::compound::outputs::Outputs;

/// Rules for judging programs.
#[derive(Clone, Debug)]
pub struct CaseRules {
    pub outputs: Outputs,
    /// The share of passed cases counts, rather than all of them.
    pub share: bool,
    /// Seconds for all cases.
    pub timeout: f64,
    /// Seconds for one; the remaining time if there is no such bound.
    pub case_timeout: Option<f64>,
    /// Seconds for the compiler.
    pub compile_timeout: f64,
    /// Bytes that a program may print in a case.
    pub max_output: usize,
    /// Source above a program whose functions a case calls, as the beginning of a JSON string.
    pub callers: String,
}

impl CaseRules {
    /// Returns the time that the next case may run; none where no time is left.
    pub fn seconds_for(&self, used: f64, cases_left: usize) -> Option<f64> {
        let left = self.timeout - used;
        #[expect(clippy::cast_precision_loss, reason = "cases of a program")]
        let usual = if self.share { left / cases_left.max(1) as f64 } else { left };
        (left > 0.0).then(|| self.case_timeout.map_or(usual, |most| most.min(left)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn rules(outputs: Outputs, share: bool) -> CaseRules {
        CaseRules {
            outputs,
            share,
            timeout: 10.0,
            case_timeout: None,
            compile_timeout: 30.0,
            max_output: 100,
            callers: String::new(),
        }
    }

    #[test]
    fn the_time_that_is_left_is_divided_where_the_share_counts() {
        let all = rules(Outputs::Exact, false);
        assert_eq!(all.seconds_for(4.0, 3), Some(6.0));
        assert_eq!(all.seconds_for(10.0, 3), None);
        let share = rules(Outputs::Exact, true);
        assert_eq!(share.seconds_for(4.0, 3), Some(2.0));
        let bounded = CaseRules { case_timeout: Some(1.5), ..share };
        assert_eq!(bounded.seconds_for(4.0, 3), Some(1.5));
        assert_eq!(bounded.seconds_for(9.0, 3), Some(1.0));
    }
}
