#include "support/npz.h"

#include <zlib.h>

#include <cstring>
#include <regex>
#include <stdexcept>

#include "base/file.h"

namespace dovetail::test {
namespace {

template <class T>
T read_at(const std::string& bytes, size_t at) {
  T value;
  if (at + sizeof value > bytes.size()) throw std::runtime_error("npz: truncated");
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string inflate_raw(const char* data, size_t size, size_t unpacked) {
  std::string out(unpacked, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::runtime_error("npz: inflateInit2 failed");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data));
  stream.avail_in = static_cast<uInt>(size);
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  if (status != Z_STREAM_END) throw std::runtime_error("npz: inflate failed");
  return out;
}

Array parse_npy(const std::string& bytes) {
  const size_t header_size = read_at<uint16_t>(bytes, 8);
  const std::string header = bytes.substr(10, header_size);
  std::smatch match;
  if (!std::regex_search(header, match, std::regex(R"('shape': \(([0-9, ]*)\))")))
    throw std::runtime_error("npy: no shape");
  Array out;
  int64_t count = 1;
  const std::string dims = match[1];
  const std::regex number("[0-9]+");
  for (std::sregex_iterator it(dims.begin(), dims.end(), number), end; it != end; ++it) {
    out.shape.push_back(std::stoll(it->str()));
    count *= out.shape.back();
  }
  if (header.find("'fortran_order': True") != std::string::npos && out.shape.size() > 1) {
    throw std::runtime_error("npy: an array in Fortran order");
  }
  const char* data = bytes.data() + 10 + header_size;
  const size_t available = bytes.size() - 10 - header_size;
  if (header.find("'<f4'") != std::string::npos && available == static_cast<size_t>(count) * 4) {
    out.values.resize(static_cast<size_t>(count));
    std::memcpy(out.values.data(), data, available);
  } else if (header.find("'<i8'") != std::string::npos && available == static_cast<size_t>(count) * 8) {
    out.integers.resize(static_cast<size_t>(count));
    std::memcpy(out.integers.data(), data, available);
  } else if (header.find("'<i4'") != std::string::npos && available == static_cast<size_t>(count) * 4) {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      int32_t value;
      std::memcpy(&value, data + 4 * i, 4);
      out.integers.push_back(value);
    }
  } else if (header.find("'|u1'") != std::string::npos && available == static_cast<size_t>(count)) {
    out.bytes.assign(data, data + available);
  } else {
    throw std::runtime_error("npy: unexpected dtype or size: " + header);
  }
  return out;
}

}  // namespace

std::map<std::string, Array> read_npz(const std::filesystem::path& path) {
  const std::string zip = read_file(path);
  std::map<std::string, Array> out;
  const size_t end = zip.rfind("PK\x05\x06");
  if (end == std::string::npos) throw std::runtime_error("npz: not a zip file");
  size_t entry = read_at<uint32_t>(zip, end + 16);
  for (int left = read_at<uint16_t>(zip, end + 10); left > 0; --left) {
    const auto method = read_at<uint16_t>(zip, entry + 10);
    const auto packed = read_at<uint32_t>(zip, entry + 20), unpacked = read_at<uint32_t>(zip, entry + 24);
    const auto name_size = read_at<uint16_t>(zip, entry + 28);
    const size_t skip = size_t{read_at<uint16_t>(zip, entry + 30)} + read_at<uint16_t>(zip, entry + 32);
    const size_t local = read_at<uint32_t>(zip, entry + 42);
    const std::string name = zip.substr(entry + 46, name_size);
    const size_t data = local + 30 + read_at<uint16_t>(zip, local + 26) + read_at<uint16_t>(zip, local + 28);
    if (data + packed > zip.size()) throw std::runtime_error("npz: truncated");
    const std::string bytes =
        method == 0 ? zip.substr(data, packed) : inflate_raw(zip.data() + data, packed, unpacked);
    out[name.substr(0, name.rfind(".npy"))] = parse_npy(bytes);
    entry += 46 + name_size + skip;
  }
  return out;
}

}  // namespace dovetail::test
