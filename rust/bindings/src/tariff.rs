//! `SpendingCap` and `Tariff`: what requests cost and how much they may, as Python says it.

use std::path::PathBuf;
use std::sync::Arc;

use guerdon_core::spending::{Cap, Price, SharedCap, Spending};
use guerdon_http::Tariff;
use pyo3::prelude::*;

/// A cap that one function's requests count toward, or those of several.
#[pyclass(frozen, module = "guerdon._native", name = "SpendingCap")]
pub struct SpendingCap {
    spending: Arc<Spending>,
}

#[pymethods]
impl SpendingCap {
    #[new]
    #[pyo3(signature = (max_cost, *, whose, shared = None))]
    fn new(max_cost: f64, whose: String, shared: Option<(PathBuf, bool)>) -> Self {
        let shared = shared.map(|(path, kept)| SharedCap { path, kept });
        Self { spending: Arc::new(Spending::new(Cap { max_cost, whose, shared })) }
    }
}

/// Prices of a function's requests, the spending cap, and whether answers are kept.
#[pyclass(frozen, module = "guerdon._native", name = "Tariff")]
pub struct PyTariff {
    pub tariff: Tariff,
}

#[pymethods]
impl PyTariff {
    #[new]
    #[pyo3(signature = (*, price = None, caps = Vec::new(), keep_answers = false, longest_answer = None))]
    fn new(
        price: Option<(f64, f64, f64, f64)>,
        caps: Vec<PyRef<'_, SpendingCap>>,
        keep_answers: bool,
        longest_answer: Option<u32>,
    ) -> Self {
        let price = price.map(|(input, cached, written, output)| Price { input, cached, written, output });
        let caps = caps.iter().map(|cap| cap.spending.clone()).collect();
        Self { tariff: Tariff { price, caps, keep_answers, longest_answer } }
    }
}
