// dovetail-hashes.json: the size and SHA-256 of every file of a package. tensor-cache.json has an MD5 per
// shard and nothing for the other files, and a parameter_schema_id says nothing about values; with this list,
// any changed byte is found. Other MLC hosts ignore the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace dovetail::package {

inline constexpr std::string_view kHashesFile = "dovetail-hashes.json";

struct FileHash {
  std::string file;  // relative to the package
  int64_t bytes = 0;
  std::string sha256;  // lower-case hex
  std::string md5;     // of shards while they are written; not stored here
};

// Writes the list, sorted by name.
void write_content_hashes(const std::filesystem::path& dir, std::vector<FileHash> files);

// Throws Error kMalformed with all problems.
std::vector<FileHash> parse_content_hashes(std::string_view json,
                                           const std::string& source = std::string(kHashesFile));

// Gives the whole file to every hasher; pages that were read do not stay resident.
void hash_mapped(const MappedFile& file, std::initializer_list<Hasher*> hashers);

// Size and SHA-256 (and MD5 when asked for) of a file, read through a mapping.
FileHash hash_file(const std::filesystem::path& dir, const std::string& file, bool with_md5 = false);

}  // namespace dovetail::package
