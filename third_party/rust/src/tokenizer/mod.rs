//! C entry points of the tokenizer.

mod wrapper;

use crate::boundary::{call, guarded, slice, Ids, Text};
use wrapper::Wrapper;

#[no_mangle]
unsafe extern "C" fn dovetail_tokenizer_new(
    json: *const u8,
    size: usize,
    tokenizer: *mut *mut Wrapper,
    error: *mut Text,
) -> bool {
    unsafe {
        call(tokenizer, error, || {
            Ok(Box::into_raw(Box::new(Wrapper::new(slice(json, size))?)))
        })
    }
}

#[no_mangle]
unsafe extern "C" fn dovetail_tokenizer_free(tokenizer: *mut Wrapper) {
    if !tokenizer.is_null() {
        let tokenizer = unsafe { Box::from_raw(tokenizer) };
        let _ = guarded(|| {
            drop(tokenizer);
            Ok(())
        });
    }
}

#[no_mangle]
unsafe extern "C" fn dovetail_tokenizer_encode(
    tokenizer: *const Wrapper,
    text: *const u8,
    size: usize,
    add_special_tokens: bool,
    ids: *mut Ids,
    error: *mut Text,
) -> bool {
    unsafe {
        call(ids, error, || {
            (*tokenizer).encode(slice(text, size), add_special_tokens).map(Ids::from)
        })
    }
}

#[no_mangle]
unsafe extern "C" fn dovetail_tokenizer_decode(
    tokenizer: *const Wrapper,
    ids: *const i32,
    count: usize,
    skip_special_tokens: bool,
    text: *mut Text,
    error: *mut Text,
) -> bool {
    unsafe {
        call(text, error, || {
            (*tokenizer).decode(slice(ids, count), skip_special_tokens).map(Text::from)
        })
    }
}

#[no_mangle]
unsafe extern "C" fn dovetail_tokenizer_vocab_size(tokenizer: *const Wrapper) -> usize {
    guarded(|| Ok(unsafe { &*tokenizer }.vocab_size())).unwrap_or(0)
}

#[no_mangle]
unsafe extern "C" fn dovetail_tokenizer_token_to_id(
    tokenizer: *const Wrapper,
    token: *const u8,
    size: usize,
) -> i32 {
    guarded(|| Ok(unsafe { (*tokenizer).token_to_id(slice(token, size)) }))
        .ok()
        .flatten()
        .unwrap_or(-1)
}

#[no_mangle]
unsafe extern "C" fn dovetail_tokenizer_id_to_token(
    tokenizer: *const Wrapper,
    id: i32,
    token: *mut Text,
) -> bool {
    let found = guarded(|| Ok(unsafe { &*tokenizer }.id_to_token(id)));
    match found.ok().flatten() {
        Some(text) => {
            unsafe { token.write(Text::from(text)) };
            true
        }
        None => false,
    }
}

#[no_mangle]
unsafe extern "C" fn dovetail_tokenizer_special_ids(
    tokenizer: *const Wrapper,
    ids: *mut Ids,
    error: *mut Text,
) -> bool {
    unsafe { call(ids, error, || (*tokenizer).special_ids().map(Ids::from)) }
}

#[no_mangle]
unsafe extern "C" fn dovetail_tokenizer_parts(
    tokenizer: *const Wrapper,
    json: *mut Text,
    error: *mut Text,
) -> bool {
    unsafe { call(json, error, || (*tokenizer).parts().map(Text::from)) }
}
