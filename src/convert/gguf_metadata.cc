#include "convert/gguf_metadata.h"

#include <cmath>

#include "base/number_text.h"

namespace dovetail::convert {
namespace {

std::string range_text(double low, double high) { return number_text(low) + " to " + number_text(high); }

std::string value_text(const GgufValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* integer = std::get_if<uint64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return number_text(*number);
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  if (const auto* text = std::get_if<std::string_view>(&value)) return "\"" + printable(*text, 60) + "\"";
  const auto& array = std::get<GgufArray>(value);
  return "array of " + std::to_string(array.count) + " " + std::string(gguf_type_name(array.type));
}

}  // namespace

void GgufMetadata::problem(std::string_view key, std::string message, std::string expected,
                           std::string actual) const {
  problems_->push_back({.message = std::move(message),
                        .source = gguf_->source(),
                        .field = "\"" + printable(prefix_ + std::string(key)) + "\"",
                        .expected = std::move(expected),
                        .actual = std::move(actual)});
}

void GgufMetadata::missing(std::string_view key, std::string expected) const {
  problem(key, "the metadata lacks this key", std::move(expected));
}

int64_t GgufMetadata::integer(std::string_view key, int64_t low, int64_t high,
                              std::optional<int64_t> fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) {
    if (!fallback) missing(key, std::to_string(low) + " to " + std::to_string(high));
    return fallback.value_or(low);
  }
  const auto* number = std::get_if<int64_t>(value);
  if (number == nullptr || *number < low || *number > high) {
    problem(key, "no such number is possible", std::to_string(low) + " to " + std::to_string(high),
            value_text(*value));
    return fallback.value_or(low);
  }
  return *number;
}

double GgufMetadata::number(std::string_view key, double low, double high,
                            std::optional<double> fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) {
    if (!fallback) missing(key, range_text(low, high));
    return fallback.value_or(low);
  }
  double number = NAN;
  if (const auto* real = std::get_if<double>(value)) number = *real;
  if (const auto* integer = std::get_if<int64_t>(value)) number = static_cast<double>(*integer);
  if (!(number >= low && number <= high)) {
    problem(key, "no such number is possible", range_text(low, high), value_text(*value));
    return fallback.value_or(low);
  }
  return number;
}

bool GgufMetadata::boolean(std::string_view key, bool fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* boolean = std::get_if<bool>(value)) return *boolean;
  problem(key, "wrong type", "a truth value", value_text(*value));
  return fallback;
}

std::string GgufMetadata::text(std::string_view key, std::optional<std::string> fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) {
    if (!fallback) missing(key, "a text");
    return fallback.value_or("");
  }
  if (const auto* text = std::get_if<std::string_view>(value)) return std::string(*text);
  problem(key, "wrong type", "a text", value_text(*value));
  return fallback.value_or("");
}

std::vector<int64_t> GgufMetadata::integers(std::string_view key, int64_t count, int64_t low,
                                            int64_t high) const {
  const GgufValue* value = find(key);
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  if (array == nullptr) return std::vector<int64_t>(static_cast<size_t>(count), integer(key, low, high));
  const auto values = array->integers();
  if (!values || static_cast<int64_t>(values->size()) != count) {
    problem(key, "not one integer for each layer", std::to_string(count), value_text(*value));
    return std::vector<int64_t>(static_cast<size_t>(count), low);
  }
  for (const int64_t entry : *values) {
    if (entry >= low && entry <= high) continue;
    problem(key, "no such number is possible", std::to_string(low) + " to " + std::to_string(high),
            std::to_string(entry));
    return std::vector<int64_t>(static_cast<size_t>(count), low);
  }
  return *values;
}

const GgufArray* GgufMetadata::array(std::string_view key, GgufType type) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<GgufArray>(value);
  if (array != nullptr && array->type == type) return array;
  problem(key, "wrong type", "an array of " + std::string(gguf_type_name(type)), value_text(*value));
  return nullptr;
}

}  // namespace dovetail::convert
