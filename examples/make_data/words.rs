//! A text of few words.

use rand::RngExt as _;

/// So many sentences, all built alike.
pub fn tales(sentences: u64) -> String {
    let adjectives = ["old", "small", "quiet", "happy", "tired"];
    let nouns = ["fox", "sailor", "baker", "owl", "miller", "child"];
    let verbs = ["meets", "follows", "greets", "helps", "finds"];
    let places = ["in the wood", "by the river", "at the mill", "on the hill"];
    let mut text = String::new();
    for sentence in 0..sentences {
        let mut random = super::random(3, sentence);
        let mut one = |words: &[&'static str]| words[random.random_range(0..words.len())];
        text += &format!("The {} {} {}", one(&adjectives), one(&nouns), one(&verbs));
        text += &format!(" the {} {} {}.", one(&adjectives), one(&nouns), one(&places));
        text.push(if sentence % 4 == 3 { '\n' } else { ' ' });
    }
    text
}
