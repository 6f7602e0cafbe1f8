//! A tokenizer.json with the settings that a language model must not apply taken out.

#![forbid(unsafe_code)]

use serde_json::Value;
use tokenizers::Tokenizer;

/// How many times longer than its input a chain of replacements may make a text. Real files stay below 20.
const MAX_GROWTH: u64 = 1024;

pub struct Wrapper {
    tokenizer: Tokenizer,
}

fn id_from(id: u32) -> Result<i32, String> {
    i32::try_from(id).map_err(|_| format!("token id {id} does not fit 31 bits"))
}

/// Upper bound of the growth by all replacements inside a component: a few dozen nested ones that each double
/// the text would ask for more memory than any machine has.
fn growth(component: &Value) -> u64 {
    match component {
        Value::Array(members) => members.iter().map(growth).fold(1, u64::saturating_mul),
        Value::Object(members) => {
            let nested = members.values().map(growth).fold(1, u64::saturating_mul);
            let content = members.get("content").and_then(Value::as_str).map_or(0, str::len) as u64;
            let literal = members.get("pattern").and_then(|p| p.get("String")).and_then(Value::as_str);
            let own = match (members.get("type").and_then(Value::as_str), literal) {
                (Some("Replace"), Some(pattern)) if !pattern.is_empty() => {
                    content.div_ceil(pattern.len() as u64).max(1)
                }
                (Some("Replace"), _) => content + 1, // may match between any two bytes
                _ => 1,
            };
            nested.saturating_mul(own)
        }
        _ => 1,
    }
}

impl Wrapper {
    pub fn new(json: &[u8]) -> Result<Self, String> {
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(|e| e.to_string())?;
        // The caller owns the context limit; text cut or padded here would change a prompt unseen.
        tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
        tokenizer.with_padding(None);
        let wrapper = Wrapper { tokenizer };
        let parts: Value = serde_json::from_str(&wrapper.parts()?).map_err(|e| e.to_string())?;
        for name in ["normalizer", "decoder"] {
            let times = growth(&parts[name]);
            if times > MAX_GROWTH {
                return Err(format!(
                    "the {name} may make a text {times} times longer, more than {MAX_GROWTH} times"
                ));
            }
        }
        Ok(wrapper)
    }

    pub fn encode(&self, text: &[u8], add_special_tokens: bool) -> Result<Vec<i32>, String> {
        let text = std::str::from_utf8(text)
            .map_err(|e| format!("text is not valid UTF-8 at byte {}", e.valid_up_to()))?;
        let encoding =
            self.tokenizer.encode_fast(text, add_special_tokens).map_err(|e| e.to_string())?;
        encoding.get_ids().iter().map(|&id| id_from(id)).collect()
    }

    pub fn decode(&self, ids: &[i32], skip_special_tokens: bool) -> Result<String, String> {
        let ids = ids
            .iter()
            .map(|&id| u32::try_from(id).map_err(|_| format!("token id {id} is negative")))
            .collect::<Result<Vec<u32>, String>>()?;
        self.tokenizer.decode(&ids, skip_special_tokens).map_err(|e| e.to_string())
    }

    pub fn vocab_size(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    pub fn token_to_id(&self, token: &[u8]) -> Option<i32> {
        let token = std::str::from_utf8(token).ok()?;
        self.tokenizer.token_to_id(token).and_then(|id| i32::try_from(id).ok())
    }

    pub fn id_to_token(&self, id: i32) -> Option<String> {
        self.tokenizer.id_to_token(u32::try_from(id).ok()?)
    }

    pub fn special_ids(&self) -> Result<Vec<i32>, String> {
        let mut ids = self
            .tokenizer
            .get_added_tokens_decoder()
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(&id, _)| id_from(id))
            .collect::<Result<Vec<i32>, String>>()?;
        ids.sort_unstable();
        Ok(ids)
    }

    pub fn parts(&self) -> Result<String, String> {
        let to_json = |value: Result<String, serde_json::Error>| value.map_err(|e| e.to_string());
        Ok(format!(
            "{{\"normalizer\":{},\"pre_tokenizer\":{},\"decoder\":{}}}",
            to_json(serde_json::to_string(&self.tokenizer.get_normalizer()))?,
            to_json(serde_json::to_string(&self.tokenizer.get_pre_tokenizer()))?,
            to_json(serde_json::to_string(&self.tokenizer.get_decoder()))?,
        ))
    }
}
