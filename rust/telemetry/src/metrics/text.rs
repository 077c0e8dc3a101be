//! The text in which Prometheus reads metrics: its own format 0.0.4, or OpenMetrics 1.0. They
//! differ in the name of a counter's family and in the end mark.

use std::fmt::Write;

use guerdon_core::clock::seconds;

use crate::metrics::families::{Family, FamilyKind};
use crate::metrics::histogram::{BOUNDS, Histogram};

/// A number, written so that none of it is lost.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Whole(u64),
    Real(f64),
}

impl Number {
    #[expect(clippy::cast_precision_loss, reason = "counts up to 9e15")]
    const fn real(self) -> f64 {
        match self {
            Self::Whole(number) => number as f64,
            Self::Real(number) => number,
        }
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<usize> for Number {
    fn from(number: usize) -> Self {
        Self::Whole(number as u64)
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

/// Takes families with their samples.
pub trait Sink {
    /// A family with its samples, each with the values of the family's labels; nothing without
    /// any.
    fn family<'a, const N: usize, T: Into<Number>>(
        &mut self,
        family: &Family,
        samples: impl IntoIterator<Item = ([&'a str; N], T)>,
    );

    /// A family of histograms.
    fn histograms<'a>(&mut self, family: &Family, samples: impl IntoIterator<Item = (&'a str, &'a Histogram)>);
}

/// One series with its value, without text; of a histogram its sum and its count.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

impl Sink for Vec<Sample> {
    fn family<'a, const N: usize, T: Into<Number>>(
        &mut self,
        family: &Family,
        samples: impl IntoIterator<Item = ([&'a str; N], T)>,
    ) {
        self.extend(samples.into_iter().map(|(values, number)| Sample {
            name: family.name.to_owned(),
            labels: family.labels.iter().copied().zip(values.map(str::to_owned)).collect(),
            value: number.into().real(),
        }));
    }

    fn histograms<'a>(&mut self, family: &Family, samples: impl IntoIterator<Item = (&'a str, &'a Histogram)>) {
        for (label, histogram) in samples {
            let labels = || family.labels.iter().copied().zip([label.to_owned()]).collect();
            let (sum, count) = (seconds(histogram.sum_ns()), Number::Whole(histogram.count()).real());
            self.push(Sample { name: format!("{}_sum", family.name), labels: labels(), value: sum });
            self.push(Sample { name: format!("{}_count", family.name), labels: labels(), value: count });
        }
    }
}

/// A text as it grows.
pub struct Text {
    out: String,
    open_metrics: bool,
    rank: String,
}

impl Text {
    pub fn new(open_metrics: bool, rank: u32) -> Self {
        Self { out: String::with_capacity(16 << 10), open_metrics, rank: rank.to_string() }
    }

    pub fn end(mut self) -> String {
        if self.open_metrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    fn head(&mut self, family: &Family) {
        let name =
            if self.open_metrics { family.name.strip_suffix("_total").unwrap_or(family.name) } else { family.name };
        let kind = family.kind.word();
        debug_assert!((family.kind == FamilyKind::Counter) == family.name.ends_with("_total"), "{name}");
        let _ = writeln!(self.out, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
    }

    fn sample(&mut self, family: &Family, suffix: &str, labels: &[&str], le: Option<&str>, number: Number) {
        debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        self.out.push_str(family.name);
        self.out.push_str(suffix);
        self.out.push('{');
        for (name, value) in family.labels.iter().zip(labels) {
            let _ = write!(self.out, "{name}=\"");
            self.escaped(value);
            self.out.push_str("\",");
        }
        if let Some(le) = le {
            let _ = write!(self.out, "le=\"{le}\",");
        }
        let _ = write!(self.out, "rank=\"{}\"}} ", self.rank);
        let _ = match number {
            Number::Whole(number) => writeln!(self.out, "{number}"),
            Number::Real(number) => writeln!(self.out, "{number:?}"),
        };
    }

    fn escaped(&mut self, value: &str) {
        for letter in value.chars() {
            match letter {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                other => self.out.push(other),
            }
        }
    }
}

impl Sink for Text {
    fn family<'a, const N: usize, T: Into<Number>>(
        &mut self,
        family: &Family,
        samples: impl IntoIterator<Item = ([&'a str; N], T)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        self.head(family);
        for (labels, number) in samples {
            self.sample(family, "", &labels, None, number.into());
        }
    }

    fn histograms<'a>(&mut self, family: &Family, samples: impl IntoIterator<Item = (&'a str, &'a Histogram)>) {
        self.head(family);
        for (label, histogram) in samples {
            for (bound, count) in BOUNDS.iter().zip(histogram.cumulative()) {
                let le = format!("{:?}", seconds(*bound));
                self.sample(family, "_bucket", &[label], Some(&le), count.into());
            }
            self.sample(family, "_bucket", &[label], Some("+Inf"), histogram.count().into());
            self.sample(family, "_sum", &[label], None, seconds(histogram.sum_ns()).into());
            self.sample(family, "_count", &[label], None, histogram.count().into());
        }
    }
}
