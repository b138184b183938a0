// Prints text so that a terminal obeys only the client. Names, reasons and messages come from other
// people, and a control character in them could colour, move or overwrite what others read.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>

namespace trainyard::output {

// Copies to another stream. A control character but newlines and tabs is written as \u001b, which
// JSON and YAML read back as that character, and kEscape (common/base/escape.h) as ESC. It borrows
// the other stream.
class PlainBuffer : public std::streambuf {
 public:
  explicit PlainBuffer(std::ostream& stream) : out_(stream) {}

  // The errno of the first write that failed, or 0 if none has.
  int error() const { return error_; }

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  void Put(const char* text, std::streamsize size);
  void PutByte(unsigned char byte);

  std::ostream& out_;
  // True after the byte with which the control characters of U+0080 to U+009F begin.
  bool is_pending_ = false;
  int error_ = 0;
};

class PlainStream : public std::ostream {
 public:
  explicit PlainStream(std::ostream& stream) : std::ostream(nullptr), buffer_(stream) {
    rdbuf(&buffer_);
  }

  int error() const { return buffer_.error(); }

 private:
  PlainBuffer buffer_;
};

}  // namespace trainyard::output
