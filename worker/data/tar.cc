// Reads only headers, and remembers where the members' bytes are. They are read when a sample is
// read.
#include "worker/data/tar.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::data {
namespace {

constexpr int64_t kBlock = 512;
// A larger name or pax header is an attack.
constexpr int64_t kMaxHeaderBytes = 64 << 10;
// This is far more than a data set has, and keeps the memory of the list below 4 GiB.
constexpr size_t kMaxMembers = 20'000'000;

absl::Status BadTar(int64_t position, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("byte ", position, ": ", what));
}

// Returns a field, which ends at its first zero byte, or at its full length.
absl::string_view Text(absl::string_view header, size_t at, size_t size) {
  const absl::string_view field = header.substr(at, size);
  return field.substr(0, field.find('\0'));
}

// Parses octal digits with blanks around them. Returns -1 for anything else.
int64_t Octal(absl::string_view field) {
  int64_t value = 0;
  bool has_digit = false;
  for (const char c : field) {
    if (c >= '0' && c <= '7') {
      value = value * 8 + (c - '0');
      has_digit = true;
    } else if (c != ' ' && c != '\0') {
      return -1;
    } else if (has_digit) {
      break;
    }
  }
  return has_digit ? value : -1;
}

int64_t Checksum(absl::string_view header) {
  constexpr size_t kBegin = 148;
  constexpr size_t kEnd = 156;
  int64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    sum += i >= kBegin && i < kEnd ? ' ' : static_cast<uint8_t>(header[i]);
  }
  return sum;
}

// Returns the value of `path` among records "<length> <key>=<value>\n", or an empty text if there
// is none.
std::string PaxPath(absl::string_view records) {
  std::string path;
  while (!records.empty()) {
    const size_t blank = records.find(' ');
    int64_t length = 0;
    if (blank == absl::string_view::npos || !absl::SimpleAtoi(records.substr(0, blank), &length) ||
        length <= static_cast<int64_t>(blank) + 1 ||
        length > static_cast<int64_t>(records.size())) {
      return path;
    }
    const auto end = static_cast<size_t>(length);
    const absl::string_view record = records.substr(blank + 1, end - blank - 2);
    constexpr absl::string_view kPath = "path=";
    if (record.substr(0, kPath.size()) == kPath) path = std::string(record.substr(kPath.size()));
    records.remove_prefix(end);
  }
  return path;
}

struct Header {
  std::string name;
  int64_t size = 0;
  char type = '0';
};

absl::StatusOr<Header> ParseHeader(absl::string_view block, int64_t at) {
  const int64_t stored = Octal(block.substr(148, 8));
  const int64_t computed = Checksum(block);
  if (stored != computed) {
    return BadTar(at + 148,
                  absl::StrCat("checksum ", stored, " of a tar header; expected ", computed));
  }
  Header header{.name = std::string(Text(block, 0, 100)),
                .size = Octal(block.substr(124, 12)),
                .type = block[156]};
  if (header.size < 0) return BadTar(at + 124, "the size of the member is no octal number");
  const absl::string_view prefix = Text(block, 345, 155);
  if (block.substr(257, 6) == absl::string_view("ustar\0", 6) && !prefix.empty()) {
    header.name = absl::StrCat(prefix, "/", header.name);
  }
  return header;
}

}  // namespace

absl::StatusOr<std::vector<TarMember>> ListTar(int64_t archive_bytes, const ReadRange& read) {
  std::vector<TarMember> members;
  std::string long_name;  // the name of the member that follows
  for (int64_t at = 0;;) {
    if (at + kBlock > archive_bytes) {
      return BadTar(archive_bytes, "the archive ends without its end mark; it was cut off");
    }
    TY_ASSIGN_OR_RETURN(const std::string block, read(at, kBlock));
    if (static_cast<int64_t>(block.size()) < kBlock) {
      return BadTar(at + static_cast<int64_t>(block.size()), "the archive became shorter");
    }
    if (std::all_of(block.begin(), block.end(), [](char c) { return c == '\0'; })) return members;
    TY_ASSIGN_OR_RETURN(Header header, ParseHeader(block, at));
    const int64_t data = at + kBlock;
    if (header.size > archive_bytes - data) {
      return BadTar(archive_bytes,
                    absl::StrCat("the archive ends inside '", header.name, "', which has ",
                                 header.size, " bytes from byte ", data));
    }
    if (header.type == 'L' || header.type == 'x') {
      if (header.size > kMaxHeaderBytes) {
        return BadTar(at + 124, absl::StrCat("a name of ", header.size, " bytes; at most ",
                                             kMaxHeaderBytes, " are accepted"));
      }
      TY_ASSIGN_OR_RETURN(const std::string content, read(data, header.size));
      const std::string name =
          header.type == 'L' ? std::string(Text(content, 0, content.size())) : PaxPath(content);
      if (!name.empty()) long_name = name;
    } else {
      if (header.type == '0' || header.type == '\0') {
        if (members.size() == kMaxMembers) {
          return BadTar(at, absl::StrCat("over ", kMaxMembers, " members are not accepted"));
        }
        members.push_back({.name = long_name.empty() ? header.name : long_name,
                           .offset = data,
                           .size = header.size});
      }
      long_name.clear();
    }
    at = data + (header.size + kBlock - 1) / kBlock * kBlock;
  }
}

absl::StatusOr<std::vector<TarMember>> ListTar(absl::string_view archive) {
  return ListTar(static_cast<int64_t>(archive.size()), [archive](int64_t offset, int64_t size) {
    return std::string(archive.substr(static_cast<size_t>(offset), static_cast<size_t>(size)));
  });
}

}  // namespace trainyard::data
