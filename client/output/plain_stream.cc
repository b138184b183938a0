// Runs of harmless bytes are copied at once, since data can be large.
#include "client/output/plain_stream.h"

#include <cerrno>

#include "absl/strings/str_format.h"
#include "common/base/escape.h"

namespace trainyard::output {
namespace {

constexpr unsigned char kDelete = 0x7f;
// U+0080 to U+009F are this byte and one of 0x80 to 0x9f.
constexpr unsigned char kFirstOfControl = 0xc2;

bool IsPlain(unsigned char byte) {
  return (byte >= ' ' || byte == '\n' || byte == '\t') && byte != kDelete &&
         byte != kFirstOfControl && byte != static_cast<unsigned char>(kEscape);
}

}  // namespace

void PlainBuffer::Put(const char* text, std::streamsize size) {
  errno = 0;
  if (out_.write(text, size).good() || error_ != 0) return;
  error_ = errno == 0 ? EIO : errno;
}

void PlainBuffer::PutByte(unsigned char byte) {
  const auto put = [this](const std::string& text) {
    Put(text.data(), static_cast<std::streamsize>(text.size()));
  };
  const bool was_pending = is_pending_;
  is_pending_ = false;
  if (was_pending && byte >= 0x80 && byte <= 0x9f) return put(absl::StrFormat("\\u%04x", byte));
  if (was_pending) put(std::string(1, static_cast<char>(kFirstOfControl)));
  if (byte == kFirstOfControl) {
    is_pending_ = true;
  } else if (byte == static_cast<unsigned char>(kEscape)) {
    put("\x1b");
  } else if (IsPlain(byte)) {
    put(std::string(1, static_cast<char>(byte)));
  } else {
    put(absl::StrFormat("\\u%04x", byte));
  }
}

std::streamsize PlainBuffer::xsputn(const char* text, std::streamsize size) {
  std::streamsize begin = 0;
  for (std::streamsize i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (!is_pending_ && IsPlain(byte)) continue;
    if (i > begin) Put(text + begin, i - begin);
    PutByte(byte);
    begin = i + 1;
  }
  if (size > begin) Put(text + begin, size - begin);
  return error_ == 0 ? size : 0;
}

PlainBuffer::int_type PlainBuffer::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char byte = traits_type::to_char_type(c);
  return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
}

int PlainBuffer::sync() {
  errno = 0;
  if (out_.flush().good()) return error_ == 0 ? 0 : -1;
  if (error_ == 0) error_ = errno == 0 ? EIO : errno;
  return -1;
}

}  // namespace trainyard::output
