//! What every C entry point shares: buffers owned by Rust, and panics turned into errors.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

#[repr(C)]
pub struct Text {
    data: *mut u8,
    size: usize,
}

#[repr(C)]
pub struct Ids {
    data: *mut i32,
    size: usize,
}

#[repr(C)]
pub struct Samples {
    data: *mut f32,
    size: usize,
}

#[repr(C)]
pub struct Bytes {
    data: *mut u8,
    size: usize,
}

fn leak<T>(values: Vec<T>) -> (*mut T, usize) {
    let values = values.into_boxed_slice();
    let size = values.len();
    (Box::into_raw(values).cast::<T>(), size)
}

/// # Safety
/// `data` and `size` come from `leak`, and are given back once.
pub unsafe fn unleak<T>(data: *mut T, size: usize) {
    if !data.is_null() {
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, size)) });
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        let (data, size) = leak(text.into_bytes());
        Text { data, size }
    }
}

impl From<Vec<i32>> for Ids {
    fn from(ids: Vec<i32>) -> Self {
        let (data, size) = leak(ids);
        Ids { data, size }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let (data, size) = leak(bytes);
        Bytes { data, size }
    }
}

impl From<Vec<f32>> for Samples {
    fn from(samples: Vec<f32>) -> Self {
        let (data, size) = leak(samples);
        Samples { data, size }
    }
}

/// # Safety
/// `data` points to `size` readable values that outlive the result, or `size` is 0.
pub unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if data.is_null() || size == 0 {
        &[]
    } else {
        unsafe { std::slice::from_raw_parts(data, size) }
    }
}

fn panic_message(payload: Box<dyn std::any::Any + Send>) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_string()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "unknown cause".to_string()
    }
}

/// Runs `body`; a panic becomes an error and prints nothing.
pub fn guarded<T>(body: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static SILENT: Once = Once::new();
    SILENT.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        Err(format!("the reader stopped unexpectedly: {}", panic_message(payload)))
    })
}

/// Runs `body` and writes its value to `out`, or its message to `error`. True on success.
///
/// # Safety
/// `out` and `error` point to writable memory of their types.
pub unsafe fn call<T>(out: *mut T, error: *mut Text, body: impl FnOnce() -> Result<T, String>) -> bool {
    match guarded(body) {
        Ok(value) => {
            unsafe { out.write(value) };
            true
        }
        Err(message) => {
            unsafe { error.write(Text::from(message)) };
            false
        }
    }
}

#[no_mangle]
unsafe extern "C" fn dovetail_rust_free_text(text: Text) {
    unsafe { unleak(text.data, text.size) }
}

#[no_mangle]
unsafe extern "C" fn dovetail_rust_free_ids(ids: Ids) {
    unsafe { unleak(ids.data, ids.size) }
}

#[no_mangle]
unsafe extern "C" fn dovetail_rust_free_samples(samples: Samples) {
    unsafe { unleak(samples.data, samples.size) }
}

#[no_mangle]
unsafe extern "C" fn dovetail_rust_free_bytes(bytes: Bytes) {
    unsafe { unleak(bytes.data, bytes.size) }
}
