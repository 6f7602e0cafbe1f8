#include "convert/sentencepiece.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "convert/pieces.h"

namespace dovetail::convert {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// The fields of one message, one after the other. Fields of no interest are checked and passed over.
class MessageReader {
 public:
  MessageReader(std::string_view message, size_t offset, const std::string& source)
      : message_(message), offset_(offset), source_(source) {}

  // False at the end of the message.
  bool next() {
    if (at_ == message_.size()) return false;
    field_begin_ = at_;
    const uint64_t tag = varint();
    number_ = tag >> 3;
    wire_ = static_cast<uint32_t>(tag & 7);
    if (number_ == 0 || number_ > kMaxFieldNumber) refuse("a field has no valid number");
    switch (wire_) {
      case kVarint:
        value_ = varint();
        break;
      case kFixed64:
        bytes_ = take(8);
        break;
      case kBytes:
        bytes_ = take(varint());
        break;
      case kFixed32:
        bytes_ = take(4);
        break;
      default:
        refuse("a field has an unknown type (" + std::to_string(wire_) + ")");
    }
    return true;
  }

  uint64_t number() const { return number_; }
  std::string_view bytes() const { return expect(kBytes), bytes_; }
  uint64_t integer() const { return expect(kVarint), value_; }
  bool boolean() const { return integer() != 0; }
  float number32() const {
    expect(kFixed32);
    static_assert(std::endian::native == std::endian::little);
    float out;
    std::memcpy(&out, bytes_.data(), sizeof out);
    return out;
  }
  MessageReader message() const {
    return {bytes(), offset_ + static_cast<size_t>(bytes_.data() - message_.data()), source_};
  }

  [[noreturn]] void refuse(std::string message) const {
    throw Error(ErrorCode::kMalformed,
                Problem{.message = std::move(message) + ", at byte " + std::to_string(offset_ + field_begin_),
                        .source = source_,
                        .hint = "the file is damaged or not completely downloaded; fetch it again"});
  }

 private:
  static constexpr uint64_t kMaxFieldNumber = (uint64_t{1} << 29) - 1;

  void expect(WireType wire) const {
    if (wire_ != wire) refuse("field " + std::to_string(number_) + " has another type");
  }

  uint64_t varint() {
    uint64_t out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == message_.size()) refuse("it ends inside a number");
      const auto byte = static_cast<unsigned char>(message_[at_++]);
      if (shift == 63 && byte > 1) break;
      out |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return out;
    }
    refuse("a number has more than 64 bits");
  }

  std::string_view take(uint64_t size) {
    if (size > message_.size() - at_) {
      refuse("a field of " + std::to_string(size) + " bytes where " + std::to_string(message_.size() - at_) +
             " are left");
    }
    const std::string_view out = message_.substr(at_, static_cast<size_t>(size));
    at_ += static_cast<size_t>(size);
    return out;
  }

  std::string_view message_;
  size_t offset_ = 0;  // of the message in the file
  const std::string& source_;
  size_t at_ = 0, field_begin_ = 0;
  uint64_t number_ = 0, value_ = 0;
  uint32_t wire_ = 0;
  std::string_view bytes_;
};

SentencePieceModel::Piece read_piece(MessageReader reader) {
  SentencePieceModel::Piece out;
  while (reader.next()) {
    if (reader.number() == 1) {
      out.text = reader.bytes();
      if (find_invalid_utf8(out.text) != std::string_view::npos) reader.refuse("a piece is not UTF-8");
    } else if (reader.number() == 2) {
      out.score = reader.number32();
      if (!std::isfinite(out.score)) reader.refuse("a piece's score is not finite");
    } else if (reader.number() == 3) {
      const uint64_t type = reader.integer();
      if (type < kNormal || type > kByte) reader.refuse("a piece has an unknown type");
      out.type = static_cast<int64_t>(type);
    }
  }
  return out;
}

void read_trainer(MessageReader reader, SentencePieceModel& out) {
  while (reader.next()) {
    switch (reader.number()) {
      case 3:
        out.model_type = static_cast<int64_t>(std::min<uint64_t>(reader.integer(), 0xff));
        break;
      case 24:
        out.whitespace_as_suffix = reader.boolean();
        break;
      case 35:
        out.byte_fallback = reader.boolean();
        break;
      case 46:
        out.begin_piece = reader.bytes();
        break;
      default:
        break;
    }
  }
}

void read_normalizer(MessageReader reader, SentencePieceModel& out) {
  while (reader.next()) {
    switch (reader.number()) {
      case 2:
        out.charsmap = reader.bytes();
        break;
      case 3:
        out.add_dummy_prefix = reader.boolean();
        break;
      case 4:
        out.remove_extra_whitespaces = reader.boolean();
        break;
      case 5:
        out.escape_whitespaces = reader.boolean();
        break;
      default:
        break;
    }
  }
}

SentencePieceModel parse(std::string_view file, const std::string& source) {
  SentencePieceModel out;
  MessageReader reader(file, 0, source);
  while (reader.next()) {
    if (reader.number() == 1) {
      if (out.pieces.size() >= static_cast<size_t>(kMaxPieces)) reader.refuse("it has too many pieces");
      out.pieces.push_back(read_piece(reader.message()));
      if (out.pieces.back().text.empty()) reader.refuse("a piece is empty");
    } else if (reader.number() == 2) {
      read_trainer(reader.message(), out);
    } else if (reader.number() == 3) {
      read_normalizer(reader.message(), out);
    }
  }
  if (out.pieces.empty()) reader.refuse("it has no pieces");
  return out;
}

// Lines of base64 and a rank: "IQ== 0".
bool is_tiktoken(std::string_view file) {
  const std::string_view line = file.substr(0, file.find('\n'));
  const size_t space = line.find(' ');
  return line.size() < 100 && space != std::string_view::npos && line.substr(space + 1) == "0";
}

}  // namespace

bool begins_as_sentencepiece(std::string_view file) {
  // Field 1 of the file is a piece, field 1 of a piece its text, both shorter than 128 bytes; then a score or
  // a type.
  if (file.size() < 4 || file[0] != '\n' || file[2] != '\n') return false;
  const auto piece = static_cast<unsigned char>(file[1]), text = static_cast<unsigned char>(file[3]);
  if (piece >= 0x80 || text == 0 || text + 2 > piece) return false;
  const std::string_view next = file.substr(std::min<size_t>(4u + text, file.size()));
  return next.empty() || next[0] == '\x15' || next[0] == '\x18' || next[0] == '\n';
}

SentencePieceModel parse_sentencepiece(std::string_view file, const std::string& source) {
  if (is_tiktoken(file)) {
    throw Error(
        ErrorCode::kUnsupported,
        Problem{.message = "is a vocabulary of tiktoken, which does not say how texts are cut into words",
                .source = source,
                .expected = "a SentencePiece model",
                .hint = "take tokenizer.json of the same model"});
  }
  try {
    return parse(file, source);
  } catch (const Error& error) {
    Problem problem = error.problems().front();
    const char* what =
        begins_as_sentencepiece(file) ? "is a damaged SentencePiece model: " : "is no SentencePiece model: ";
    problem.message.insert(0, what);
    throw Error(error.code(), std::move(problem));
  }
}

}  // namespace dovetail::convert
