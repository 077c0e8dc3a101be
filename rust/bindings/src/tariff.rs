//! `SpendingCap`, and tariffs: what requests cost and how much they may, as Python says it.

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

/// Prices of a function's requests, the spending caps, and whether answers are kept.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TariffArg {
    price: Option<(f64, f64, f64, f64)>,
    caps: Vec<Py<SpendingCap>>,
    keep_answers: bool,
    longest_answer: Option<u32>,
}

impl TariffArg {
    pub fn tariff(self) -> Tariff {
        let price = self.price.map(|(input, cached, written, output)| Price { input, cached, written, output });
        let caps = self.caps.iter().map(|cap| cap.get().spending.clone()).collect();
        Tariff { price, caps, keep_answers: self.keep_answers, longest_answer: self.longest_answer }
    }
}
