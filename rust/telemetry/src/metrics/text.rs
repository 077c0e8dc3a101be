//! The metrics as text for Prometheus, and as samples for OpenTelemetry. The text has Prometheus'
//! format 0.0.4, or OpenMetrics 1.0, which differs in the name of a counter's family and in the end
//! mark.

use std::fmt::Write;

use crate::metrics::families::{FAMILIES, Figures};

/// Returns the metrics in OpenMetrics or in Prometheus' format.
#[must_use]
pub fn metrics(figures: Figures<'_>, open_metrics: bool) -> String {
    let rank = figures.identity.rank;
    let mut out = String::with_capacity(16 << 10);
    for family in FAMILIES {
        let series = (family.series)(figures);
        if series.is_empty() {
            continue;
        }
        let name = if open_metrics { family.name.strip_suffix("_total").unwrap_or(family.name) } else { family.name };
        debug_assert!((family.kind == "counter") == family.name.ends_with("_total"), "{name}");
        // Writing to a String can't fail.
        let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {}", family.help, family.kind);
        for (values, measure) in series {
            debug_assert_eq!(values.len(), family.labels.len(), "{}", family.name);
            let mut labels = String::new();
            for (label, value) in family.labels.iter().zip(values) {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                let _ = write!(labels, "{label}=\"{value}\",");
            }
            measure.numbers(|suffix, bound, number| {
                let _ = write!(out, "{}{suffix}{{{labels}", family.name);
                let _ = match bound {
                    Some(f64::INFINITY) => write!(out, "le=\"+Inf\","),
                    Some(bound) => write!(out, "le=\"{bound:?}\","),
                    None => Ok(()),
                };
                let _ = writeln!(out, "rank=\"{rank}\"}} {number}");
            });
        }
    }
    if open_metrics {
        out.push_str("# EOF\n");
    }
    out
}

/// Name, labels and value of a series, without the label `rank`.
pub type Sample = (String, Vec<(&'static str, String)>, f64);

/// Returns the metrics as samples; of a histogram the sum and the count.
#[must_use]
pub fn samples(figures: Figures<'_>) -> Vec<Sample> {
    let mut samples = Vec::new();
    for family in FAMILIES {
        for (values, measure) in (family.series)(figures) {
            let labels = family.labels.iter().zip(values).map(|(label, value)| (*label, value.to_owned()));
            let labels: Vec<_> = labels.collect();
            measure.numbers(|suffix, bound, number| {
                if bound.is_none() {
                    samples.push((format!("{}{suffix}", family.name), labels.clone(), number));
                }
            });
        }
    }
    samples
}
