//! C entry point of chat templates.

mod render;

use crate::boundary::{call, slice, Text};

#[no_mangle]
unsafe extern "C" fn dovetail_template_render(
    template: *const u8,
    template_size: usize,
    values: *const u8,
    values_size: usize,
    text: *mut Text,
    error: *mut Text,
) -> bool {
    unsafe {
        call(text, error, || {
            render::render(slice(template, template_size), slice(values, values_size)).map(Text::from)
        })
    }
}
