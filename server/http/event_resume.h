// Numbers the events of a stream, so that a client whose connection breaks goes on where it was: it
// sends the id of the last event that it has got (Last-Event-ID), and loses nothing and gets
// nothing twice.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "google/protobuf/message.h"
#include "server/http/rpc_methods.h"

namespace trainyard::http {

// Says what the client gets of a message.
struct Taken {
  bool is_new = true;  // false if the client has all of it
  // The message without its beginning, if the client has that; otherwise null.
  std::unique_ptr<google::protobuf::Message> rest = nullptr;
};

// The place in one stream. A log has a place for each rank and goes on from attempt to attempt, so
// one stream of events may take several calls.
class Cursor {
 public:
  virtual ~Cursor() = default;
  // Goes on after the event. Returns false for a text that is no id of this stream.
  virtual bool Resume(absl::string_view id) = 0;
  // Returns the request of the first call.
  virtual std::unique_ptr<google::protobuf::Message> Request() const = 0;
  // Returns the attempt whose number of ranks would help Request, or nothing.
  virtual std::optional<AttemptId> AttemptToKnow() const { return std::nullopt; }
  virtual void SetRanks(int) {}
  // Takes the message of an event of the present call.
  virtual Taken Take(const google::protobuf::Message& message) = 0;
  // Returns the id of the event that was taken last; empty if it cannot have one.
  virtual std::string Id() const = 0;
  // Returns the request of the call that follows a call which has ended with `status`, or nothing
  // if the stream is over.
  virtual std::unique_ptr<google::protobuf::Message> Following(const absl::Status&) {
    return nullptr;
  }
};

// Takes the bytes of a message apart into those of the messages that become events. Bytes that are
// no message stay as they are.
std::vector<std::string> TakeApart(const google::protobuf::Descriptor& type, std::string message);

// Makes the cursor of a stream, or null if its events have no ids.
std::unique_ptr<Cursor> MakeCursor(const RpcMethod& method,
                                   const google::protobuf::Message& request);

}  // namespace trainyard::http
