#include "contract/canonical.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/hash.h"
#include "contract/reader.h"

namespace dovetail::contract {
namespace {

// The order of UTF-16 code units, read from UTF-8: bytes compare like code points, except that surrogate
// pairs (lead bytes F0 to F4) come before U+E000 to U+FFFF (lead bytes EE and EF).
bool utf16_less(std::string_view a, std::string_view b) {
  const auto rank = [](unsigned char c) -> int {
    if (c >= 0xf0) return c - 2;
    if (c >= 0xee) return c + 5;
    return c;
  };
  const size_t shared = std::min(a.size(), b.size());
  for (size_t i = 0; i < shared; ++i) {
    if (a[i] != b[i]) return rank(static_cast<unsigned char>(a[i])) < rank(static_cast<unsigned char>(b[i]));
  }
  return a.size() < b.size();
}

void write_string(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void write_value(const Json& value, std::string& out) {
  switch (value.type()) {
    case Json::value_t::object: {
      std::vector<std::pair<std::string_view, const Json*>> members;
      members.reserve(value.size());
      for (const auto& [name, member] : value.items()) members.emplace_back(name, &member);
      std::sort(members.begin(), members.end(),
                [](const auto& a, const auto& b) { return utf16_less(a.first, b.first); });
      out += '{';
      for (size_t i = 0; i < members.size(); ++i) {
        if (i > 0) out += ',';
        write_string(members[i].first, out);
        out += ':';
        write_value(*members[i].second, out);
      }
      out += '}';
      break;
    }
    case Json::value_t::array:
      out += '[';
      for (size_t i = 0; i < value.size(); ++i) {
        if (i > 0) out += ',';
        write_value(value[i], out);
      }
      out += ']';
      break;
    case Json::value_t::string:
      write_string(value.get_ref<const std::string&>(), out);
      break;
    case Json::value_t::number_float: {
      const std::optional<int64_t> number = as_integer(value);
      if (!number) {
        throw Error(ErrorCode::kUnsupported, Problem{.message = "canonical JSON holds only integers",
                                                     .expected = "an integer of at most 2^53 - 1",
                                                     .actual = value.dump()});
      }
      out += std::to_string(*number);
      break;
    }
    default:
      out += value.dump();  // null, booleans and integers have one form
  }
}

std::string id_of(std::string_view canonical) { return "sha256:" + sha256_hex(canonical); }

}  // namespace

std::string canonical_json(const Json& value) {
  std::string out;
  write_value(value, out);
  return out;
}

std::string interface_id(const Tasks& tasks) {
  Json document = Json::object();
  document["tasks"] = canonical_tasks(tasks);
  return id_of(canonical_json(document));
}

std::string canonical_parameters(const std::vector<ParameterRecord>& parameters) {
  std::vector<const ParameterRecord*> sorted;
  sorted.reserve(parameters.size());
  for (const ParameterRecord& parameter : parameters) sorted.push_back(&parameter);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return utf16_less(a->name, b->name); });
  Json records = Json::array();
  for (const ParameterRecord* const parameter : sorted) {
    Json shape = Json::array();
    for (const Dimension& dimension : parameter->shape) {
      std::visit([&](const auto& value) { shape.push_back(value); }, dimension);
    }
    records.push_back({{"name", parameter->name}, {"shape", std::move(shape)}, {"dtype", parameter->dtype}});
  }
  return canonical_json(records);
}

std::string parameter_schema_id(const std::vector<ParameterRecord>& parameters) {
  return id_of(canonical_parameters(parameters));
}

int64_t parameter_bytes(const ParameterRecord& parameter, const NamedDimensions& dimensions) {
  const auto fail = [&](Problem problem) -> Error {
    problem.source = "parameters";
    problem.field = in_quotes(parameter.name);
    return Error(ErrorCode::kMalformed, std::move(problem));
  };
  const std::optional<DType> dtype = dtype_from_name(parameter.dtype);
  if (!dtype) throw fail({.message = "unknown dtype", .actual = in_quotes(parameter.dtype)});
  int64_t bytes = dtype_bytes(*dtype);
  for (const Dimension& dimension : parameter.shape) {
    int64_t size = 0;
    if (const auto* const name = std::get_if<std::string>(&dimension)) {
      const auto found = dimensions.find(*name);
      if (found == dimensions.end()) {
        throw fail({.message = "the dimension " + in_quotes(*name) + " has no value",
                    .hint = "a named dimension takes its value from the model config"});
      }
      size = found->second;
    } else {
      size = std::get<int64_t>(dimension);
    }
    if (size < 0) throw fail({.message = "negative dimension", .actual = std::to_string(size)});
    const std::optional<int64_t> product = try_mul(bytes, size);
    if (!product) throw fail({.message = "the size does not fit into 64 bits"});
    bytes = *product;
  }
  return bytes;
}

Resources compute_resources(const std::vector<ParameterRecord>& parameters, const NamedDimensions& dimensions,
                            std::vector<std::string> required_features) {
  Resources resources;
  std::vector<Problem> problems;
  for (const ParameterRecord& parameter : parameters) {
    try {
      const int64_t bytes = parameter_bytes(parameter, dimensions);
      resources.max_storage_buffer_binding_size = std::max(resources.max_storage_buffer_binding_size, bytes);
      const std::optional<int64_t> total = try_add(resources.estimated_device_memory_bytes, bytes);
      if (!total) {
        problems.push_back(
            {.message = "the size of all parameters does not fit into 64 bits", .source = "parameters"});
        break;
      }
      resources.estimated_device_memory_bytes = *total;
    } catch (const Error& error) {
      problems.push_back(error.problems().front());
    }
  }
  if (!problems.empty()) throw Error(ErrorCode::kMalformed, std::move(problems));
  std::sort(required_features.begin(), required_features.end());
  required_features.erase(std::unique(required_features.begin(), required_features.end()),
                          required_features.end());
  resources.required_features = std::move(required_features);
  return resources;
}

std::vector<std::string> dimension_names(const std::vector<ParameterRecord>& parameters) {
  std::set<std::string> names;
  for (const ParameterRecord& parameter : parameters) {
    for (const Dimension& dimension : parameter.shape) {
      if (const auto* const name = std::get_if<std::string>(&dimension)) names.insert(*name);
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace dovetail::contract
