//! The metrics as text, in which Prometheus reads them, and as samples. The text is Prometheus' own
//! format 0.0.4, or OpenMetrics 1.0: they differ in the name of a counter's family and in the end
//! mark.

use std::fmt::Write;

use guerdon_core::clock::seconds;

use crate::metrics::families::{FAMILIES, Family, FamilyKind, Figures, Measure};
use crate::metrics::histogram::BOUNDS;

/// The metrics, in OpenMetrics or in Prometheus' own format.
#[must_use]
pub fn metrics(figures: Figures<'_>, open_metrics: bool) -> String {
    let rank = figures.identity.rank.to_string();
    let mut text = Text { out: String::with_capacity(16 << 10), rank };
    for family in FAMILIES {
        let series = (family.series)(figures);
        if series.is_empty() {
            continue;
        }
        let name = if open_metrics { family.name.strip_suffix("_total").unwrap_or(family.name) } else { family.name };
        debug_assert!((family.kind == FamilyKind::Counter) == family.name.ends_with("_total"), "{name}");
        // Writing to a String can't fail.
        let _ = writeln!(text.out, "# HELP {name} {}\n# TYPE {name} {}", family.help, family.kind.word());
        for (labels, value) in series {
            text.series(family, &labels, &value);
        }
    }
    if open_metrics {
        text.out.push_str("# EOF\n");
    }
    text.out
}

/// A text as it grows.
struct Text {
    out: String,
    rank: String,
}

impl Text {
    fn series(&mut self, family: &Family, labels: &[&str], value: &Measure<'_>) {
        let Measure::Times(histogram) = value else { return self.line(family, "", labels, None, value) };
        for (bound, count) in BOUNDS.iter().zip(histogram.cumulative()) {
            let le = format!("{:?}", seconds(*bound));
            self.line(family, "_bucket", labels, Some(&le), &Measure::Whole(count));
        }
        self.line(family, "_bucket", labels, Some("+Inf"), &Measure::Whole(histogram.count()));
        self.line(family, "_sum", labels, None, &Measure::Real(seconds(histogram.sum_ns())));
        self.line(family, "_count", labels, None, &Measure::Whole(histogram.count()));
    }

    fn line(&mut self, family: &Family, suffix: &str, labels: &[&str], le: Option<&str>, value: &Measure<'_>) {
        debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        let _ = write!(self.out, "{}{suffix}{{", family.name);
        for (name, value) in family.labels.iter().zip(labels) {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.out, "{name}=\"{value}\",");
        }
        if let Some(le) = le {
            let _ = write!(self.out, "le=\"{le}\",");
        }
        let _ = write!(self.out, "rank=\"{}\"}} ", self.rank);
        let _ = match value {
            Measure::Whole(number) => writeln!(self.out, "{number}"),
            Measure::Real(number) => writeln!(self.out, "{number:?}"),
            Measure::Times(_) => Ok(()), // has lines of numbers
        };
    }
}

/// One series with its value, without text and the label `rank`; of a histogram its sum and its
/// count.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

/// The metrics as samples.
#[must_use]
pub fn samples(figures: Figures<'_>) -> Vec<Sample> {
    let mut samples = Vec::new();
    for family in FAMILIES {
        for (labels, value) in (family.series)(figures) {
            let mut push = |suffix: &str, value: f64| {
                let labels = family.labels.iter().copied().zip(labels.iter().map(|label| (*label).to_owned()));
                samples.push(Sample { name: format!("{}{suffix}", family.name), labels: labels.collect(), value });
            };
            match value {
                Measure::Whole(number) => push("", real(number)),
                Measure::Real(number) => push("", number),
                Measure::Times(histogram) => {
                    push("_sum", seconds(histogram.sum_ns()));
                    push("_count", real(histogram.count()));
                }
            }
        }
    }
    samples
}

#[expect(clippy::cast_precision_loss, reason = "counts up to 9e15")]
const fn real(number: u64) -> f64 {
    number as f64
}
