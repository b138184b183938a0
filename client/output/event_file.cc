// Writes the few fields that matter with protobuf's own writer, since TensorBoard's messages are
// not packaged: Event has wall_time = 1, step = 2, file_version = 3 and summary = 5; a summary has
// values = 1, each with tag = 1 and simple_value = 2 (tensorflow/core/util/event.proto and
// framework/summary.proto).
#include "client/output/event_file.h"

#include <cstdint>
#include <cstring>

#include "client/output/text.h"
#include "common/base/crc32c.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"

namespace trainyard::output {
namespace {

using google::protobuf::internal::WireFormatLite;

// Returns the bytes that `write` puts on the stream.
template <typename Write>
std::string Written(Write write) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    write(coded);
  }
  return bytes;
}

// Numbers are little-endian, as this machine's are.
template <typename Number>
std::string BytesOf(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::string RecordOf(const std::string& event) {
  const std::string length = BytesOf<uint64_t>(event.size());
  return length + BytesOf(MaskedCrc32c(length)) + event + BytesOf(MaskedCrc32c(event));
}

}  // namespace

std::string EventFileHead(double wall_time_s) {
  return RecordOf(Written([&](google::protobuf::io::CodedOutputStream& out) {
    WireFormatLite::WriteDouble(1, wall_time_s, &out);
    WireFormatLite::WriteString(3, "brain.Event:2", &out);
  }));
}

std::string EventRecord(absl::string_view tag, const v1::MetricPoint& point) {
  const std::string value = Written([&](google::protobuf::io::CodedOutputStream& out) {
    WireFormatLite::WriteString(1, std::string(tag), &out);
    WireFormatLite::WriteFloat(2, static_cast<float>(point.value()), &out);
  });
  const std::string summary = Written([&](google::protobuf::io::CodedOutputStream& out) {
    WireFormatLite::WriteBytes(1, value, &out);
  });
  const double wall_time_s = absl::ToDoubleSeconds(ToTime(point.time()) - absl::UnixEpoch());
  return RecordOf(Written([&](google::protobuf::io::CodedOutputStream& out) {
    WireFormatLite::WriteDouble(1, wall_time_s, &out);
    WireFormatLite::WriteInt64(2, point.step(), &out);
    WireFormatLite::WriteBytes(5, summary, &out);
  }));
}

}  // namespace trainyard::output
