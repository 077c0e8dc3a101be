//! Latency of an answer.

use std::time::Duration;

/// A distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Latency {
    #[default]
    None,
    Fixed(Duration),
    Uniform(Duration, Duration),
    /// Log-normal, like the latency of real judges: the median, and the spread of the logarithm.
    LogNormal {
        median: Duration,
        sigma: f64,
    },
}

impl Latency {
    /// Draws a latency from the distribution.
    pub fn draw(self, random: &mut fastrand::Rng) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Fixed(time) => time,
            Self::Uniform(least, most) => least + most.saturating_sub(least).mul_f64(random.f64()),
            Self::LogNormal { median, sigma } => {
                // Box and Muller's normal variate.
                let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * random.f64()).cos();
                median.mul_f64((sigma * normal).exp())
            }
        }
    }

    /// Reads `fixed:1`, `uniform:0.5,1.5` or `lognormal:1,0.5`, in seconds.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, numbers) = text.split_once(':')?;
        let numbers: Option<Vec<f64>> = numbers.split(',').map(|number| number.parse().ok()).collect();
        let time = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        Some(match (kind, &numbers?[..]) {
            ("fixed", [seconds]) => Self::Fixed(time(*seconds)?),
            ("uniform", [least, most]) => Self::Uniform(time(*least)?, time(*most)?),
            ("lognormal", [median, sigma]) => Self::LogNormal { median: time(*median)?, sigma: *sigma },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_their_distribution() {
        let mut random = fastrand::Rng::with_seed(7);
        let latency = Latency::parse("lognormal:1,0.5").unwrap();
        let mut times: Vec<f64> = (0..2001).map(|_| latency.draw(&mut random).as_secs_f64()).collect();
        times.sort_by(f64::total_cmp);
        assert!((times[1000] - 1.0).abs() < 0.1, "{}", times[1000]);
        assert!(times[1960] > 2.0 && times[1960] < 4.0, "{}", times[1960]);
        assert_eq!(Latency::parse("fixed:0.5"), Some(Latency::Fixed(Duration::from_millis(500))));
        assert_eq!(Latency::parse("uniform:1"), None);
    }
}
