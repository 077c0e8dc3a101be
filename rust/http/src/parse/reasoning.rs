//! Takes the reasoning out of an answer: what a judge thought aloud is not its verdict.
//!
//! - Tags that leave open where the reasoning ends are an error.
//! - A chat template may begin the reasoning, so that the answer has only its end: that end is at
//!   the beginning or end of a line.

use std::borrow::Cow;

/// Marks around reasoning, in lower case.
const MARKS: [(&str, &str); 12] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<reflection>", "</reflection>"),
    ("<analysis>", "</analysis>"),
    ("<scratchpad>", "</scratchpad>"),
    ("<seed:think>", "</seed:think>"),
    ("[think]", "[/think]"),
    ("◁think▷", "◁/think▷"),
    ("<|start_thinking|>", "<|end_thinking|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
];
/// Mark at the beginning of each part in an answer that names its channels.
const CHANNEL: &str = "<|channel|>";
const FINAL: &str = "<|channel|>final<|message|>";

/// A mark in an answer.
struct Mark {
    kind: usize,
    opens: bool,
    start: usize,
    end: usize,
}

/// The answer without its reasoning; `Err` has the reason if there is none.
pub fn stripped(text: &str) -> Result<Cow<'_, str>, String> {
    let answer = if text.contains(CHANNEL) { Cow::Borrowed(final_channel(text)?) } else { without_blocks(text)? };
    if answer.trim().is_empty() && !text.trim().is_empty() {
        return Err("nothing but reasoning".to_owned());
    }
    Ok(answer)
}

fn final_channel(text: &str) -> Result<&str, String> {
    let mut parts = text.split(FINAL).skip(1);
    match (parts.next(), parts.next()) {
        (Some(answer), None) if !answer.contains(CHANNEL) => {
            let end = answer.find("<|").unwrap_or(answer.len());
            Ok(&answer[..end])
        }
        (None, _) => Err("reasoning without a final answer".to_owned()),
        _ => Err("more than one final answer".to_owned()),
    }
}

fn without_blocks(text: &str) -> Result<Cow<'_, str>, String> {
    let marks = marks(text);
    let (Some(first), Some(last)) = (marks.first(), marks.last()) else { return Ok(Cow::Borrowed(text)) };
    let unmatched = || "reasoning whose tags don't match".to_owned();
    let starts_with_block = first.opens && text[..first.start].trim().is_empty();
    let (mut open, mut kept, mut from): (Vec<usize>, String, usize) = (Vec::new(), String::new(), 0);
    for mark in &marks {
        if mark.opens {
            if open.is_empty() {
                kept.push_str(&text[from..mark.start]);
                kept.push('\n');
            }
            open.push(mark.kind);
        } else if open.is_empty() {
            // The end of a reasoning that the chat template began.
            let (before, after) = (&text[..mark.start], &text[mark.end..]);
            let ends_line = after.is_empty() || after.starts_with(['\n', '\r']);
            let starts_line = before.is_empty() || before.ends_with('\n');
            let is_end = std::ptr::eq(mark, last) && !starts_with_block && (ends_line || starts_line);
            return if is_end { Ok(Cow::Borrowed(after)) } else { Err(unmatched()) };
        } else {
            if open.pop() != Some(mark.kind) {
                return Err(unmatched());
            }
            from = mark.end;
        }
    }
    if !open.is_empty() {
        return Err("reasoning that does not end".to_owned());
    }
    kept.push_str(&text[from..]);
    Ok(Cow::Owned(kept))
}

/// The marks of a text that are not quoted.
fn marks(text: &str) -> Vec<Mark> {
    let mut found = Vec::new();
    for (start, _) in text.match_indices(['<', '[', '◁']) {
        let rest = &text.as_bytes()[start..];
        let begins =
            |mark: &str| rest.get(..mark.len()).is_some_and(|bytes| bytes.eq_ignore_ascii_case(mark.as_bytes()));
        let kinds = MARKS.iter().enumerate();
        let known = kinds.filter_map(|(kind, (opening, closing))| {
            if begins(opening) {
                Some((kind, true, opening.len()))
            } else {
                begins(closing).then_some((kind, false, closing.len()))
            }
        });
        let Some((kind, opens, length)) = known.into_iter().next() else { continue };
        let end = start + length;
        let quote = |letter: char| matches!(letter, '`' | '"' | '\'' | '“' | '”' | '‘' | '’');
        if !(text[..start].ends_with(quote) && text[end..].starts_with(quote)) {
            found.push(Mark { kind, opens, start, end });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_what_follows_the_reasoning() {
        for (text, answer) in [
            ("8", "8"),
            ("<think>7? no</think>8", "\n8"),
            ("<THINK>\n7\n</Think>\n\n8", "\n\n\n8"),
            ("hm, 7\n</think>\n8", "\n8"),
            ("a <think> b 5 </think> c\n</think>\n8", "\n8"),
            ("<think>it uses `</think>` wrongly</think>8", "\n8"),
            ("It has no `<think>`. 8", "It has no `<think>`. 8"),
            ("[THINK]7[/THINK]8", "\n8"),
            ("<think><think>6</think>7</think>8", "\n8"),
            ("<|channel|>analysis<|message|>7?<|end|><|start|>assistant<|channel|>final<|message|>8<|return|>", "8"),
        ] {
            assert_eq!(stripped(text).as_deref(), Ok(answer), "{text}");
        }
        for (text, why) in [
            ("<think>7", "does not end"),
            ("8 <think> or 7", "does not end"),
            ("<think>It says </think>\nScore: 10. A trick.</think>\n1", "don't match"),
            ("It closes </think> with 9 words", "don't match"),
            ("<think>7</think>", "nothing but reasoning"),
            ("<think>7</thinking>8</think>", "don't match"),
            ("<|channel|>analysis<|message|>7?", "without a final answer"),
        ] {
            assert!(stripped(text).is_err_and(|found| found.contains(why)), "{text}");
        }
    }
}
