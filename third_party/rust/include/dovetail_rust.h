/* C interface of third_party/rust: crates that read data from outside, behind functions that never unwind.
 *
 * Every function that can fail returns true on success. On false `error` holds a UTF-8 message; everything
 * written to an out parameter is owned by Rust and goes back with the matching dovetail_rust_free_* call.
 * Input pointers may be null when their size is 0. All functions may be called from any thread. */
#ifndef DOVETAIL_RUST_H
#define DOVETAIL_RUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* UTF-8 text without a terminating zero. */
typedef struct {
  char* data;
  size_t size;
} DovetailRustText;

typedef struct {
  int32_t* data;
  size_t size;
} DovetailRustIds;

typedef struct {
  float* data;
  size_t size;
} DovetailRustSamples;

typedef struct {
  uint8_t* data;
  size_t size;
} DovetailRustBytes;

void dovetail_rust_free_text(DovetailRustText text);
void dovetail_rust_free_ids(DovetailRustIds ids);
void dovetail_rust_free_samples(DovetailRustSamples samples);
void dovetail_rust_free_bytes(DovetailRustBytes bytes);

/* ---- tokenizers ---- */

typedef struct DovetailTokenizer DovetailTokenizer;

/* `json` is the content of a tokenizer.json. Its truncation and padding settings are not applied. */
bool dovetail_tokenizer_new(const uint8_t* json, size_t size, DovetailTokenizer** tokenizer,
                            DovetailRustText* error);
void dovetail_tokenizer_free(DovetailTokenizer* tokenizer);

/* `text` must be valid UTF-8. */
bool dovetail_tokenizer_encode(const DovetailTokenizer* tokenizer, const char* text, size_t size,
                               bool add_special_tokens, DovetailRustIds* ids, DovetailRustText* error);
/* Ids without a token contribute nothing. */
bool dovetail_tokenizer_decode(const DovetailTokenizer* tokenizer, const int32_t* ids, size_t count,
                               bool skip_special_tokens, DovetailRustText* text, DovetailRustText* error);

/* Number of tokens, added tokens included. */
size_t dovetail_tokenizer_vocab_size(const DovetailTokenizer* tokenizer);
/* -1 when there is no such token. */
int32_t dovetail_tokenizer_token_to_id(const DovetailTokenizer* tokenizer, const char* token, size_t size);
/* False (and nothing written) when there is no such id. */
bool dovetail_tokenizer_id_to_token(const DovetailTokenizer* tokenizer, int32_t id, DovetailRustText* token);
/* Ids of the added tokens marked special, ascending. */
bool dovetail_tokenizer_special_ids(const DovetailTokenizer* tokenizer, DovetailRustIds* ids,
                                    DovetailRustText* error);
/* {"normalizer": …, "pre_tokenizer": …, "decoder": …} as JSON, each null when absent. */
bool dovetail_tokenizer_parts(const DovetailTokenizer* tokenizer, DovetailRustText* json,
                              DovetailRustText* error);

/* ---- chat templates ---- */

/* `text` is a Jinja template, `values`, a JSON object of variables; both UTF-8. Bounded in time and depth. */
bool dovetail_template_render(const char* text, size_t text_size, const char* values, size_t values_size,
                              DovetailRustText* rendered, DovetailRustText* error);

/* ---- compressed audio ---- */

enum { DOVETAIL_AUDIO_FLAC = 0, DOVETAIL_AUDIO_MP3 = 1, DOVETAIL_AUDIO_OGG = 2 };

typedef struct {
  DovetailRustSamples samples; /* mono (channels averaged), sample_rate a second; empty when over_limit */
  uint32_t sample_rate;
  uint32_t channels; /* of the source */
  uint64_t frames;   /* of the source; when over_limit the declared number, or as many as were decoded */
  bool over_limit;
  DovetailRustText codec; /* "FLAC", "MP3" or "Vorbis" */
  DovetailRustText notes; /* things the user should know, one a line */
} DovetailAudio;

/* Decoding stops once the recording would have more than limit_samples samples at limit_sample_rate.
 * Damage that the format can show (checksums, declared length) is an error. */
bool dovetail_audio_decode(const uint8_t* bytes, size_t size, uint32_t container, uint32_t limit_sample_rate,
                           uint64_t limit_samples, DovetailAudio* audio, DovetailRustText* error);

/* ---- pictures ---- */

enum {
  DOVETAIL_IMAGE_JPEG = 0,
  DOVETAIL_IMAGE_PNG = 1,
  DOVETAIL_IMAGE_WEBP = 2,
  DOVETAIL_IMAGE_GIF = 3,
  DOVETAIL_IMAGE_BMP = 4,
  DOVETAIL_IMAGE_TIFF = 5
};

enum {
  DOVETAIL_IMAGE_DECODED = 0,
  DOVETAIL_IMAGE_REFUSED = 1,    /* its dimensions exceed a limit, or least_bytes exceeds the size */
  DOVETAIL_IMAGE_UNSUPPORTED = 2 /* details tells what */
};

typedef struct {
  uint32_t outcome;
  DovetailRustBytes pixels; /* [height, width, 3], upright, on white; empty unless decoded */
  uint32_t width;
  uint32_t height;
  uint32_t stored_width; /* before the EXIF orientation is applied; when refused, what the header says */
  uint32_t stored_height;
  uint64_t least_bytes;     /* when refused: the least size of a whole file with these dimensions */
  DovetailRustText details; /* such as "progressive" or "8-bit RGB, interlaced" */
  DovetailRustText omissions; /* content of the file that is left out, one a line */
  DovetailRustText notes;     /* what was done to the rest, one a line */
} DovetailImage;

/* Dimensions are checked before pixels are decoded or memory for them is taken. A damaged or truncated file
 * is an error. */
bool dovetail_image_decode(const uint8_t* bytes, size_t size, uint32_t format, uint32_t max_side,
                           uint64_t max_pixels, DovetailImage* image, DovetailRustText* error);

#ifdef __cplusplus
}
#endif

#endif
