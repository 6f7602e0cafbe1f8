//! Jinja templates as Hugging Face's tokenizers render them: whitespace control on, Python's methods of texts,
//! `raise_exception` and `strftime_now`.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value};

const MAX_TEMPLATE_BYTES: usize = 1 << 20;
/// Steps of one rendering; a conversation of a few messages needs some thousands.
const FUEL: u64 = 2_000_000;

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// A fixed day: what a template says with it can't be part of a package, and must not change between two calls.
fn strftime_now(format: String) -> String {
    format
        .replace("%Y", "2000")
        .replace("%B", "January")
        .replace("%b", "Jan")
        .replace("%m", "01")
        .replace("%d", "01")
}

fn describe(error: &Error) -> String {
    let mut text = error.detail().map_or_else(|| error.kind().to_string(), str::to_string);
    if let Some(line) = error.line() {
        text += &format!(" (line {line})");
    }
    text
}

/// `values` is a JSON object: the variables.
pub fn render(template: &[u8], values: &[u8]) -> Result<String, String> {
    if template.len() > MAX_TEMPLATE_BYTES {
        return Err(format!("the template has more than {MAX_TEMPLATE_BYTES} bytes"));
    }
    let template = std::str::from_utf8(template).map_err(|_| "the template is not UTF-8".to_string())?;
    let values: serde_json::Value =
        serde_json::from_slice(values).map_err(|error| format!("the variables are no JSON: {error}"))?;
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(false);
    environment.set_syntax(syntax.build().map_err(|error| describe(&error))?);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(64);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.render_str(template, Value::from(Serde(&values))).map_err(|error| describe(&error))
}
