#include "contract/reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dovetail::contract {
namespace {

constexpr size_t kMaxProblems = 100;

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool is_id(std::string_view text) {
  constexpr std::string_view kPrefix = "sha256:";
  if (text.size() != kPrefix.size() + 64 || !text.starts_with(kPrefix)) return false;
  text.remove_prefix(kPrefix.size());
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

void ProblemList::add(Problem problem) {
  if (problems_.size() >= kMaxProblems) {
    ++left_out_;
    return;
  }
  if (problem.source.empty()) problem.source = source_;
  problems_.push_back(std::move(problem));
}

std::vector<Problem> ProblemList::take() {
  if (left_out_ > 0) {
    problems_.push_back(
        {.message = "and " + std::to_string(left_out_) + " more problems", .source = source_});
    left_out_ = 0;
  }
  return std::exchange(problems_, {});
}

std::string member_path(std::string_view parent, std::string_view name) {
  std::string path(parent);
  if (is_plain_name(name)) {
    if (!path.empty()) path += '.';
    return path.append(name);
  }
  return path + "[" + in_quotes(name) + "]";
}

std::string element_path(std::string_view parent, size_t index) {
  return std::string(parent) + "[" + std::to_string(index) + "]";
}

std::string in_quotes(std::string_view text) { return "\"" + printable(text, 100) + "\""; }

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return in_quotes(value.get_ref<const std::string&>());
    case Json::value_t::array:
      return "an array of " + std::to_string(value.size());
    case Json::value_t::object:
      return "an object of " + std::to_string(value.size());
    default:
      return value.dump();
  }
}

std::string any_of(const std::vector<std::string_view>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += in_quotes(names[i]);
  }
  return text;
}

std::optional<std::string> read_text(const Json& value, const std::string& path, ProblemList& problems) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    problems.add({.message = "wrong value",
                  .field = path,
                  .expected = "a non-empty string",
                  .actual = describe(value)});
    return std::nullopt;
  }
  return value.get<std::string>();
}

std::optional<std::string> read_id(const Json& value, const std::string& path, ProblemList& problems) {
  if (!value.is_string() || !is_id(value.get_ref<const std::string&>())) {
    problems.add({.message = "not an identifier",
                  .field = path,
                  .expected = "\"sha256:\" and 64 lowercase hex digits",
                  .actual = describe(value)});
    return std::nullopt;
  }
  return value.get<std::string>();
}

std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(kMaxInteger)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) {
    const int64_t number = value.get<int64_t>();
    if (number < -kMaxInteger || number > kMaxInteger) return std::nullopt;
    return number;
  }
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (!(std::abs(number) <= static_cast<double>(kMaxInteger)) || number != std::floor(number))
      return std::nullopt;
    return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

std::optional<int64_t> read_integer(const Json& value, const std::string& path, int64_t min,
                                    ProblemList& problems) {
  const std::optional<int64_t> number = as_integer(value);
  if (!number || *number < min) {
    problems.add({.message = "wrong value",
                  .field = path,
                  .expected = "an integer from " + std::to_string(min) + " to 2^53 - 1",
                  .actual = describe(value)});
    return std::nullopt;
  }
  return number;
}

ObjectReader::ObjectReader(const Json& value, std::string path, ProblemList& problems)
    : path_(std::move(path)), problems_(problems) {
  if (value.is_object()) {
    object_ = &value;
  } else {
    problems_.add(
        {.message = "wrong value", .field = path_, .expected = "an object", .actual = describe(value)});
  }
}

const Json* ObjectReader::optional(std::string_view name) {
  if (!object_) return nullptr;
  if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.push_back(name);
  const auto found = object_->find(name);
  return found == object_->end() ? nullptr : &*found;
}

const Json* ObjectReader::required(std::string_view name) {
  const Json* const value = optional(name);
  if (object_ && !value) problems_.add({.message = "missing", .field = path(name)});
  return value;
}

std::string ObjectReader::text(std::string_view name) {
  const Json* const value = required(name);
  return value ? read_text(*value, path(name), problems_).value_or("") : "";
}

std::string ObjectReader::id(std::string_view name) {
  const Json* const value = required(name);
  return value ? read_id(*value, path(name), problems_).value_or("") : "";
}

std::string ObjectReader::choice(std::string_view name, const std::vector<std::string_view>& accepted) {
  const Json* const value = required(name);
  if (!value) return "";
  if (value->is_string()) {
    const std::string& text = value->get_ref<const std::string&>();
    if (std::find(accepted.begin(), accepted.end(), text) != accepted.end()) return text;
  }
  problems_.add({.message = "wrong value",
                 .field = path(name),
                 .expected = any_of(accepted),
                 .actual = describe(*value)});
  return "";
}

std::optional<int64_t> ObjectReader::integer(std::string_view name, int64_t min,
                                             std::optional<int64_t> fallback) {
  const Json* const value = fallback ? optional(name) : required(name);
  if (!value) return fallback;
  return read_integer(*value, path(name), min, problems_);
}

void ObjectReader::constant(std::string_view name, int64_t value) {
  const Json* const found = required(name);
  if (found && as_integer(*found) != value) {
    problems_.add({.message = "wrong value",
                   .field = path(name),
                   .expected = "the number " + std::to_string(value),
                   .actual = describe(*found)});
  }
}

void ObjectReader::members(std::string_view name, bool is_required, size_t min_count,
                           const MemberReader& read) {
  const Json* const value = is_required ? required(name) : optional(name);
  if (!value) return;
  const std::string here = path(name);
  if (!value->is_object() || value->size() < min_count) {
    problems_.add({.message = "wrong value",
                   .field = here,
                   .expected = min_count > 0 ? "an object with at least one member" : "an object",
                   .actual = describe(*value)});
    return;
  }
  for (const auto& [key, member] : value->items()) {
    const std::string there = member_path(here, key);
    if (key.empty()) problems_.add({.message = "a name must not be empty", .field = there});
    read(key, member, there);
  }
}

void ObjectReader::refuse_unknown() {
  if (!object_) return;
  for (const auto& [key, value] : object_->items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    problems_.add({.message = "unknown field",
                   .field = path(key),
                   .expected = any_of(known_),
                   .actual = in_quotes(key)});
  }
}

}  // namespace dovetail::contract
