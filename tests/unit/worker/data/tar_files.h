// Makes tar archives for tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::data {

struct TarFile {
  std::string name;
  std::string content;
  char type = '0';
};

// Returns one member: its header and its content in whole blocks.
inline std::string TarMemberBytes(const TarFile& file) {
  std::string header(512, '\0');
  const auto put = [&header](size_t at, absl::string_view text) {
    header.replace(at, text.size(), text.data(), text.size());
  };
  char size[13];
  std::snprintf(size, sizeof(size), "%011o", static_cast<unsigned>(file.content.size()));
  put(0, absl::string_view(file.name).substr(0, 100));
  put(100, "0000644");
  put(124, size);
  put(148, "        ");
  header[156] = file.type;
  put(257, absl::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  char checksum[9];
  std::snprintf(checksum, sizeof(checksum), "%06o", sum);
  put(148, absl::string_view(checksum, 7));
  std::string bytes = header + file.content;
  bytes.resize((bytes.size() + 511) / 512 * 512);
  return bytes;
}

inline std::string TarBytes(const std::vector<TarFile>& files) {
  std::string bytes;
  for (const TarFile& file : files) bytes += TarMemberBytes(file);
  return bytes + std::string(1024, '\0');
}

}  // namespace trainyard::data
