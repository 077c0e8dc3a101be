//! Messages to a judge after an answer that can't be read: its answer, then the fault.

/// Longest part of an answer that is sent back, in bytes: its end.
const LONGEST_ANSWER: usize = 4 << 10;
/// Most bytes kept for all calls of a function.
pub const MOST_BYTES: usize = 8 << 20;

/// The messages behind those of the request: the judge's answer, and what to do about it.
pub fn messages(answer: &str, advice: &str) -> Vec<u8> {
    let mut from = answer.len().saturating_sub(LONGEST_ANSWER);
    while !answer.is_char_boundary(from) {
        from += 1;
    }
    // Servers refuse an assistant's message without text.
    let answer = if answer.trim().is_empty() { "(no answer)" } else { &answer[from..] };
    let of = |role: &str, content: &str| serde_json::json!({ "role": role, "content": content }).to_string();
    format!(",{},{}", of("assistant", answer), of("user", advice)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_others_in_a_list() {
        let list = [b"[0".to_vec(), messages("é\"".repeat(4000).as_str(), "Again"), b"]".to_vec()].concat();
        let found: serde_json::Value = serde_json::from_slice(&list).unwrap();
        assert_eq!((&found[1]["role"], &found[2]["content"]), (&"assistant".into(), &"Again".into()));
        let sent = found[1]["content"].as_str().unwrap();
        assert!(sent.len() <= LONGEST_ANSWER && sent.ends_with("é\""));
        assert!(String::from_utf8(messages(" ", "Again")).unwrap().contains("(no answer)"));
    }
}
