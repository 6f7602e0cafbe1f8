// What a frontend hands to the engine: a conversation of text and media.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dovetail::engine {

// One decoded medium, ready for its adapter. Made by the functions of engine/media.h.
struct Media {
  std::string input;            // the input of the manifest's task: "audio", "image"
  std::string adapter;          // the adapter of the library's program
  std::string sha256;           // over kind, processor and decoded content
  std::vector<float> samples;   // mono, at the processor's rate
  double seconds = 0;           // of the recording
  std::vector<uint8_t> pixels;  // of a picture: RGB [height, width, 3], as its adapter takes them
  int64_t height = 0;           // 0: not a picture
  int64_t width = 0;
  std::optional<int64_t> rows;  // that the adapter will return, where that is known

  // Where it comes from, for people; empty for samples and pixels that a frontend decoded itself.
  std::string source;         // the name of the file
  std::string format;         // such as "PNG, 8-bit RGBA"
  int64_t source_height = 0;  // of the picture in the file, upright
  int64_t source_width = 0;
  std::vector<std::string> warnings;  // what of the file was left out or had to be assumed
  std::vector<std::string> notes;     // what was done to the rest
};

using Part = std::variant<std::string, std::shared_ptr<const Media>>;

// A system turn stands before all others; several are joined by a blank line.
enum class Role { kSystem, kUser, kAssistant };

struct Turn {
  Role role = Role::kUser;
  std::vector<Part> parts;  // in order; only a user's may be media
};

struct Conversation {
  std::optional<std::string> system;  // before system turns; without either: the package's own
  std::vector<Turn> turns;            // the last one is the user's
};

}  // namespace dovetail::engine
