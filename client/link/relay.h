// Carries bytes between two descriptors, as they come.
#pragma once

#include <poll.h>

#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::link {

// Carries bytes one way. It borrows both descriptors, which do not block. Whoever owns it waits
// with poll, so that one thread can carry several ways:
//   while (way.is_open()) { poll(way.ToRead(), way.ToWrite()); way.Move(); }
class OneWay {
 public:
  // Writes `first` before what comes from `from`.
  OneWay(int from, int to, absl::string_view first = "");

  // Return what to wait for. The descriptor is -1, which poll skips, if nothing can be done there.
  pollfd ToRead() const;
  pollfd ToWrite() const;
  // Reads and writes once what can be read and written without waiting.
  void Move();
  // Returns false once `from` has ended and all its bytes are written, or nobody takes them.
  bool is_open() const;
  // Returns true once `from` has ended.
  bool has_ended() const { return has_ended_; }

 private:
  int from_;
  int to_;
  std::vector<char> buffer_;
  // The bytes in [begin_, end_) of the buffer are still to be written.
  size_t begin_ = 0;
  size_t end_ = 0;
  bool has_ended_ = false;
  bool is_broken_ = false;
};

// Lets reads and writes return instead of waiting.
void SetNonBlocking(int fd);

}  // namespace trainyard::link
