// Reads texts piece by piece, since pipes have no size.
#include "client/spec_loader/spec_text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/spec_loader/yaml_tree.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::spec_loader {
namespace {

// Opens a file or a pipe. A device would never end.
absl::StatusOr<UniqueFd> OpenText(const std::string& path) {
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_RDONLY));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "cannot stat", path);
  if (S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode)) return fd;
  return absl::InvalidArgumentError(
      absl::StrCat("'", path, "' is ", S_ISDIR(info.st_mode) ? "a folder" : "a device",
                   "; expected a file, a pipe, or - for standard input"));
}

// Reads the file, or standard input, until `is_enough` returns true for the text so far.
absl::StatusOr<std::string> ReadText(
    const std::string& path, absl::FunctionRef<bool(absl::string_view text_so_far)> is_enough) {
  UniqueFd opened;
  if (path != "-") {
    TY_ASSIGN_OR_RETURN(opened, OpenText(path));
  }
  const int fd = path == "-" ? STDIN_FILENO : opened.get();
  std::string text;
  char buffer[64 << 10];
  while (!is_enough(text)) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read", path);
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

bool IsDocumentMark(absl::string_view line) {
  // At the start of a line, the mark ends a document even within a text.
  return absl::StartsWith(line, "---") && absl::StripAsciiWhitespace(line) == "---";
}

// Finds the last document of a text that grows.
class LastDocument {
 public:
  // Returns the number of bytes of the last document of `text`, which begins with the text of the
  // call before.
  size_t BytesOf(absl::string_view text) {
    size_t end = 0;
    while ((end = text.find('\n', line_begin_)) != absl::string_view::npos) {
      const bool is_mark = IsDocumentMark(text.substr(line_begin_, end - line_begin_));
      line_begin_ = end + 1;
      ++lines_;
      if (!is_mark) continue;
      begin_ = line_begin_;
      first_line_ = lines_;
    }
    return text.size() - begin_;
  }
  // Returns the number of lines before the document.
  int first_line() const { return first_line_; }

 private:
  size_t begin_ = 0;
  size_t line_begin_ = 0;
  int lines_ = 0;
  int first_line_ = 0;
};

std::string ShownName(const std::string& path) {
  return path == "-" ? "<stdin>" : path;
}

}  // namespace

std::vector<SpecText> SplitDocuments(absl::string_view name, absl::string_view text) {
  std::vector<SpecText> documents;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  size_t first = 0;
  bool has_content = false;
  const auto finish = [&](size_t end) {
    if (has_content) {
      const std::string content = absl::StrJoin(lines.begin() + static_cast<ptrdiff_t>(first),
                                                lines.begin() + static_cast<ptrdiff_t>(end), "\n");
      documents.push_back({std::string(name), content, static_cast<int>(first)});
    }
    has_content = false;
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    const absl::string_view line = absl::StripAsciiWhitespace(lines[i]);
    if (IsDocumentMark(lines[i])) {
      finish(i);
      first = i + 1;
    } else if (!line.empty() && line[0] != '#') {
      has_content = true;
    }
  }
  finish(lines.size());
  if (documents.empty()) documents.push_back({std::string(name), std::string(text), 0});
  return documents;
}

absl::StatusOr<SpecText> ReadSpecText(const std::string& path) {
  TY_ASSIGN_OR_RETURN(std::string text, ReadText(path, [](absl::string_view so_far) {
                        return so_far.size() > kFileBytesMax;
                      }));
  return SpecText{.name = ShownName(path), .text = std::move(text)};
}

absl::StatusOr<std::vector<SpecText>> ReadSpecTexts(const std::string& path) {
  constexpr size_t kBytesMax = size_t{256} << 20;
  LastDocument last;
  size_t bytes_of_last = 0;
  TY_ASSIGN_OR_RETURN(const std::string text, ReadText(path, [&](absl::string_view so_far) {
                        bytes_of_last = last.BytesOf(so_far);
                        return bytes_of_last > kFileBytesMax || so_far.size() > kBytesMax;
                      }));
  if (bytes_of_last > kFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "': the document that begins in line ", last.first_line() + 1,
                     " is over ", FormatBytes(kFileBytesMax), ", the limit of a spec"));
  }
  if (text.size() > kBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' is over ", FormatBytes(kBytesMax), "; split it"));
  }
  return SplitDocuments(ShownName(path), text);
}

}  // namespace trainyard::spec_loader
