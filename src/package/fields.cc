#include "package/fields.h"

#include <utility>

namespace dovetail::package {
namespace {

constexpr size_t kMaxProblems = 100;

std::string number_text(double value) { return Json(value).dump(); }

}  // namespace

void ProblemList::add(Problem problem) {
  if (problems_.size() < kMaxProblems) {
    problems_.push_back(std::move(problem));
  } else {
    ++dropped_;
  }
}

void ProblemList::add(const std::vector<Problem>& problems) {
  for (const Problem& problem : problems) add(problem);
}

std::vector<Problem> ProblemList::take() {
  if (dropped_ > 0) problems_.push_back({.message = "and " + std::to_string(dropped_) + " more problems"});
  dropped_ = 0;
  return std::exchange(problems_, {});
}

void ProblemList::throw_if_any(ErrorCode code) {
  if (!problems_.empty()) throw Error(code, take());
}

std::string_view json_type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number with a fraction or exponent";
    default:
      return "another type";
  }
}

Fields::Fields(const Json& value, std::string_view source, std::string path, ProblemList& problems)
    : object_(value.is_object() ? &value : nullptr),
      source_(source),
      path_(std::move(path)),
      problems_(problems) {
  if (object_ == nullptr) {
    problems_.add({.message = "wrong type",
                   .source = std::string(source_),
                   .field = path_,
                   .expected = "an object",
                   .actual = std::string(json_type_name(value))});
  }
}

std::string Fields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

void Fields::problem(std::string_view name, std::string message, std::string expected, std::string actual,
                     std::string hint) {
  problems_.add({.message = std::move(message),
                 .source = std::string(source_),
                 .field = path_of(name),
                 .expected = std::move(expected),
                 .actual = std::move(actual),
                 .hint = std::move(hint)});
}

const Json* Fields::find(std::string_view name) const {
  if (object_ == nullptr) return nullptr;
  const auto it = object_->find(name);
  return it == object_->end() ? nullptr : &*it;
}

const Json* Fields::need(std::string_view name, Presence presence) {
  const Json* value = find(name);
  if (value != nullptr && value->is_null() && presence == Presence::kOptional) return nullptr;
  if (value == nullptr && presence == Presence::kRequired && object_ != nullptr) problem(name, "is missing");
  return value;
}

void Fields::wrong_type(std::string_view name, std::string_view expected, const Json& value) {
  problem(name, "wrong type", std::string(expected), std::string(json_type_name(value)));
}

std::optional<std::string> Fields::string(std::string_view name, Presence presence) {
  const Json* value = need(name, presence);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  wrong_type(name, "a string", *value);
  return std::nullopt;
}

std::optional<bool> Fields::boolean(std::string_view name, Presence presence) {
  const Json* value = need(name, presence);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  wrong_type(name, "true or false", *value);
  return std::nullopt;
}

namespace {

// Nothing when the value is no integer of 64 bits.
std::optional<int64_t> as_int64(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

std::string range_text(int64_t min, int64_t max) {
  if (max == std::numeric_limits<int64_t>::max()) return "an integer of at least " + std::to_string(min);
  return "an integer from " + std::to_string(min) + " to " + std::to_string(max);
}

}  // namespace

std::optional<int64_t> Fields::integer(std::string_view name, int64_t min, int64_t max, Presence presence) {
  const Json* value = need(name, presence);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = as_int64(*value);
  if (number && *number >= min && *number <= max) return number;
  if (value->is_number()) {
    problem(name, "out of range", range_text(min, max), value->dump());
  } else {
    wrong_type(name, range_text(min, max), *value);
  }
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view name, double min, double max, Presence presence) {
  const Json* value = need(name, presence);
  if (value == nullptr) return std::nullopt;
  const std::string range = "a number from " + number_text(min) + " to " + number_text(max);
  if (!value->is_number()) {
    wrong_type(name, range, *value);
    return std::nullopt;
  }
  const double number = value->get<double>();
  if (number >= min && number <= max) return number;
  problem(name, "out of range", range, value->dump());
  return std::nullopt;
}

const Json* Fields::array(std::string_view name, Presence presence) {
  const Json* value = need(name, presence);
  if (value == nullptr || value->is_array()) return value;
  wrong_type(name, "an array", *value);
  return nullptr;
}

const Json* Fields::object(std::string_view name, Presence presence) {
  const Json* value = need(name, presence);
  if (value == nullptr || value->is_object()) return value;
  wrong_type(name, "an object", *value);
  return nullptr;
}

std::optional<std::vector<std::string>> Fields::strings(std::string_view name, Presence presence) {
  const Json* value = array(name, presence);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> out;
  for (size_t i = 0; i < value->size(); ++i) {
    const Json& item = (*value)[i];
    if (!item.is_string()) {
      wrong_type(std::string(name) + "[" + std::to_string(i) + "]", "a string", item);
      return std::nullopt;
    }
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::optional<std::vector<int64_t>> Fields::integers(std::string_view name, int64_t min, int64_t max,
                                                     Presence presence) {
  const Json* value = array(name, presence);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> out;
  for (size_t i = 0; i < value->size(); ++i) {
    const Json& item = (*value)[i];
    const std::optional<int64_t> number = as_int64(item);
    if (!number || *number < min || *number > max) {
      problem(std::string(name) + "[" + std::to_string(i) + "]", "out of range", range_text(min, max),
              item.is_number() ? item.dump() : std::string(json_type_name(item)));
      return std::nullopt;
    }
    out.push_back(*number);
  }
  return out;
}

}  // namespace dovetail::package
