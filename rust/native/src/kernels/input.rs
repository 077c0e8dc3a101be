//! Inputs of a kernel for a sample, and the form of references in them.

use std::borrow::Cow;

use serde_json::Value;

use crate::kernels::fault::Fault;

/// Form of an input, independent of its type in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputForm {
    /// A text.
    Text,
    /// A text, or JSON: null, a text or a list of texts.
    References,
    /// JSON of any kind.
    Json,
    /// Token ids.
    Ids,
}

/// One value of a sample.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    Text(Cow<'a, str>),
    Json(Cow<'a, str>),
    Ids(Vec<u32>),
    /// A value that the kernel does not take, with the reason.
    Wrong(String),
}

impl Input<'_> {
    /// Returns the text to score.
    pub(crate) fn text(inputs: &[Self]) -> Result<&str, Fault> {
        match inputs.first() {
            Some(Self::Text(text)) => Ok(text),
            Some(Self::Wrong(why)) => Err(Fault::input(0, why)),
            _ => Err(Fault::invalid("there is no text to score")),
        }
    }

    pub(crate) fn ids(inputs: &[Self]) -> Result<&[u32], Fault> {
        match inputs.first() {
            Some(Self::Ids(ids)) => Ok(ids),
            Some(Self::Wrong(why)) => Err(Fault::input(0, why)),
            _ => Err(Fault::invalid("there are no token ids to score")),
        }
    }

    /// Returns the references at this index; `None` if the column has none.
    pub(crate) fn references<'a>(inputs: &'a [Input<'_>], place: usize) -> Result<Option<Vec<Cow<'a, str>>>, Fault> {
        match inputs.get(place) {
            Some(Input::Text(text)) => Ok(Some(vec![Cow::Borrowed(text)])),
            Some(Input::Json(json)) => of_json(json).map_err(|why| Fault::input(place, why)),
            Some(Input::Wrong(why)) => Err(Fault::input(place, why)),
            _ => Err(Fault::invalid("there is nothing to compare with")),
        }
    }

    /// Returns the text of the JSON at this index.
    pub(crate) fn json<'a>(inputs: &'a [Input<'_>], place: usize) -> Result<&'a str, Fault> {
        match inputs.get(place) {
            Some(Input::Text(json) | Input::Json(json)) => Ok(json),
            Some(Input::Wrong(why)) => Err(Fault::input(place, why)),
            _ => Err(Fault::invalid("there is no JSON value")),
        }
    }
}

fn of_json(json: &str) -> Result<Option<Vec<Cow<'_, str>>>, &'static str> {
    let odd = || "a reference is neither a text nor a list of texts";
    match serde_json::from_str(json).map_err(|_| odd())? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(vec![Cow::Owned(text)])),
        Value::Array(values) if values.is_empty() => Err("the list of references is empty"),
        Value::Array(values) => {
            let text = |value| match value {
                Value::String(text) => Ok(Cow::Owned(text)),
                _ => Err(odd()),
            };
            values.into_iter().map(text).collect::<Result<_, _>>().map(Some)
        }
        _ => Err(odd()),
    }
}

#[cfg(test)]
mod tests {
    //! References in the forms that columns have.

    use super::*;

    fn read(input: Input<'_>) -> Result<Option<Vec<String>>, Fault> {
        let inputs = [Input::Text("".into()), input];
        Ok(Input::references(&inputs, 1)?.map(|texts| texts.into_iter().map(Cow::into_owned).collect()))
    }

    #[test]
    fn references_are_texts_lists_or_none() {
        let json = |text: &'static str| read(Input::Json(text.into()));
        assert_eq!(read(Input::Text("null".into())), Ok(Some(vec!["null".to_owned()])));
        assert_eq!(json("null"), Ok(None));
        assert_eq!(json("\"a\""), Ok(Some(vec!["a".to_owned()])));
        assert_eq!(json("[\"a\", \"b\"]"), Ok(Some(vec!["a".to_owned(), "b".to_owned()])));
        for odd in ["[]", "1", "[1]", "{", "{}"] {
            assert!(matches!(json(odd), Err(Fault::Input(1, _))), "{odd}");
        }
        assert_eq!(read(Input::Wrong("odd".to_owned())), Err(Fault::Input(1, "odd".to_owned())));
    }
}
