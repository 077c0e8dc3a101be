//! One checker an instruction.

use crate::kernels::fault::{Fault, Stop};
use crate::kernels::ifeval::arguments::{Arguments, Bound, IDS};
use crate::kernels::ifeval::keyword::Keyword;
use crate::kernels::ifeval::{layout, markup};
use crate::kernels::python_text::{is_lower, is_upper, lower, strip};

/// The answers that IFEval allows as a response.
const RESPONSES: [&str; 3] = ["My answer is yes.", "My answer is no.", "My answer is maybe."];

/// Returns whether a text follows an instruction; `None` if that can't be decided here.
pub fn follows(text: &str, id: &str, arguments: &Arguments<'_>, stop: &dyn Stop) -> Result<Option<bool>, Fault> {
    let characters = || text.chars().collect::<Vec<char>>();
    let at_least = |name: &str, count: usize| Some(count as f64 >= positive(arguments, name)?);
    Ok(match id {
        "keywords:existence" => {
            let keywords = all_keywords(arguments, "keywords");
            let text = characters();
            keywords.map(|keywords| none(&keywords, |keyword| Ok(!keyword.is_in(&text, stop)?))).transpose()?
        }
        "keywords:forbidden_words" => {
            let keywords = all_keywords(arguments, "forbidden_words");
            let text = characters();
            keywords.map(|keywords| none(&keywords, |keyword| keyword.is_word_in(&text, stop))).transpose()?
        }
        "keywords:frequency" => {
            let bound = arguments.bound("frequency", "relation")?;
            let keyword =
                arguments.text("keyword").map(strip).filter(|keyword| !keyword.is_empty()).and_then(Keyword::new);
            let holds = |(keyword, bound): (Keyword, Bound)| Ok(bound.holds(keyword.count(&characters(), stop)?));
            keyword.zip(bound).map(holds).transpose()?
        }
        "keywords:letter_frequency" => {
            let bound = arguments.bound("let_frequency", "let_relation")?;
            letter(arguments)
                .zip(bound)
                .map(|(letter, bound)| bound.holds(lower(text).chars().filter(|one| *one == letter).count()))
        }
        "length_constraints:number_words" => {
            arguments.bound("num_words", "relation")?.map(|bound| bound.holds(layout::words(text)))
        }
        "length_constraints:number_paragraphs" => {
            positive(arguments, "num_paragraphs").map(|wanted| layout::has_paragraphs(text, wanted))
        }
        "length_constraints:nth_paragraph_first_word" => layout::nth_first_word(text, arguments),
        "detectable_content:number_placeholders" => at_least("num_placeholders", markup::placeholders(text)),
        "detectable_content:postscript" => {
            arguments.text("postscript_marker").and_then(|marker| markup::has_postscript(&lower(text), strip(marker)))
        }
        "detectable_format:number_bullet_lists" => {
            positive(arguments, "num_bullets").map(|wanted| markup::bullets(text) as f64 == wanted)
        }
        "detectable_format:constrained_response" => {
            Some(RESPONSES.iter().any(|response| strip(text).contains(response)))
        }
        "detectable_format:number_highlighted_sections" => at_least("num_highlights", markup::highlights(text)),
        "detectable_format:multiple_sections" => arguments
            .text("section_spliter")
            .and_then(|splitter| markup::sections(text, strip(splitter)))
            .and_then(|count| at_least("num_sections", count)),
        "detectable_format:json_format" => Some(markup::is_json(text)),
        "detectable_format:title" => Some(markup::has_title(text)),
        "combination:two_responses" => Some(layout::has_two_responses(text)),
        "combination:repeat_prompt" => {
            arguments.text("prompt_to_repeat").map(|prompt| layout::repeats_prompt(text, prompt))
        }
        "startend:end_checker" => arguments.text("end_phrase").map(|phrase| layout::ends_with(text, phrase)),
        "startend:quotation" => Some(layout::is_quoted(text)),
        "punctuation:no_comma" => Some(!text.contains(',')),
        // Decided without detecting the language: otherwise a text in the required case would score
        // worse.
        "change_case:english_capital" => Some(is_upper(text)),
        "change_case:english_lowercase" => Some(is_lower(text)),
        // These need a language detector, a trained sentence splitter or a tokenizer based on one.
        "language:response_language" | "length_constraints:number_sentences" | "change_case:capital_word_frequency" => {
            None
        }
        other => return Err(Fault::input(IDS, format!("IFEval has no instruction {other:?}"))),
    })
}

fn positive(arguments: &Arguments<'_>, name: &str) -> Option<f64> {
    arguments.number(name).filter(|number| *number >= 0.0)
}

/// Returns the keywords; `None` without any, or if one is more than plain words.
fn all_keywords(arguments: &Arguments<'_>, name: &str) -> Option<Vec<Keyword>> {
    arguments.texts(name)?.into_iter().map(Keyword::new).collect()
}

/// Returns whether a condition holds for none of the keywords.
fn none(keywords: &[Keyword], is_true: impl Fn(&Keyword) -> Result<bool, Fault>) -> Result<bool, Fault> {
    for keyword in keywords {
        if is_true(keyword)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns an ASCII letter, in lower case.
fn letter(arguments: &Arguments<'_>) -> Option<char> {
    let mut letters = arguments.text("letter")?.chars();
    let letter = letters.next().map(|letter| letter.to_ascii_lowercase())?;
    (letters.next().is_none() && letter.is_ascii_lowercase()).then_some(letter)
}
