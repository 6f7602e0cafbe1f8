#include "models/config_reader.h"

#include <cmath>
#include <sstream>

namespace dovetail::models {
namespace {

std::string brief(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

std::string range(double low, double high) {
  std::ostringstream out;
  out << low << " … " << high;
  return out.str();
}

}  // namespace

const Json* ConfigReader::find(std::string_view key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void ConfigReader::problem(std::string_view key, std::string message, std::string expected,
                           std::string actual) const {
  problems_->push_back({.message = std::move(message),
                        .source = source_,
                        .field = path_.empty() ? std::string(key) : path_ + "." + std::string(key),
                        .expected = std::move(expected),
                        .actual = std::move(actual)});
}

int64_t ConfigReader::integer(std::string_view key, int64_t low, int64_t high,
                              std::optional<int64_t> fallback) const {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!fallback) problem(key, "missing", "an integer");
    return fallback.value_or(low);
  }
  const std::string wanted = std::to_string(low) + " … " + std::to_string(high);
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX})) {
    problem(key, "not an integer", wanted, brief(*value));
    return fallback.value_or(low);
  }
  const int64_t number = value->get<int64_t>();
  if (number < low || number > high) {
    problem(key, "out of range", wanted, std::to_string(number));
    return fallback.value_or(low);
  }
  return number;
}

double ConfigReader::number(std::string_view key, double low, double high,
                            std::optional<double> fallback) const {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!fallback) problem(key, "missing", "a number");
    return fallback.value_or(low);
  }
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= low && number <= high)) {
    problem(key, value->is_number() ? "out of range" : "not a number", range(low, high), brief(*value));
    return fallback.value_or(low);
  }
  return number;
}

bool ConfigReader::boolean(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    problem(key, "not a boolean", "true or false", brief(*value));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::text(std::string_view key, std::optional<std::string> fallback) const {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!fallback) problem(key, "missing", "a string");
    return fallback.value_or("");
  }
  if (!value->is_string()) {
    problem(key, "not a string", "a string", brief(*value));
    return fallback.value_or("");
  }
  return value->get<std::string>();
}

std::vector<std::string> ConfigReader::texts(std::string_view key) const {
  std::vector<std::string> out;
  const Json* value = find(key);
  if (value == nullptr) return out;
  if (!value->is_array()) {
    problem(key, "not a list", "a list of strings", brief(*value));
    return out;
  }
  for (size_t i = 0; i < value->size(); ++i) {
    const Json& element = (*value)[i];
    if (element.is_string()) {
      out.push_back(element.get<std::string>());
    } else {
      problem(std::string(key) + "[" + std::to_string(i) + "]", "not a string", "a string", brief(element));
    }
  }
  return out;
}

std::optional<ConfigReader> ConfigReader::object(std::string_view key, bool required) const {
  const Json* value = find(key);
  if (value == nullptr || !value->is_object()) {
    if (value != nullptr || required) {
      problem(key, value == nullptr ? "missing" : "not an object", "an object",
              value == nullptr ? "" : brief(*value));
    }
    return std::nullopt;
  }
  return ConfigReader(*value, source_, path_.empty() ? std::string(key) : path_ + "." + std::string(key),
                      *problems_);
}

}  // namespace dovetail::models
