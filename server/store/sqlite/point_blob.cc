// Writes and reads varints with the streams of Protocol Buffers.
#include "server/store/sqlite/point_blob.h"

#include <bit>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"

namespace trainyard::store {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// Differences wrap around, so that every pair of numbers has one.
uint64_t Difference(int64_t to, int64_t from) {
  const uint64_t difference = static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  return WireFormatLite::ZigZagEncode64(static_cast<int64_t>(difference));
}

bool Add(CodedInputStream& input, int64_t& number) {
  google::protobuf::uint64 read = 0;
  if (!input.ReadVarint64(&read)) return false;
  const auto difference = static_cast<uint64_t>(WireFormatLite::ZigZagDecode64(read));
  number = static_cast<int64_t>(static_cast<uint64_t>(number) + difference);
  return true;
}

}  // namespace

std::string EncodePoints(const std::vector<PackedPoint>& points) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    CodedOutputStream output(&stream);
    PackedPoint last;
    for (const PackedPoint& point : points) {
      output.WriteVarint64(Difference(point.cursor, last.cursor));
      output.WriteVarint64(Difference(point.step, last.step));
      output.WriteVarint64(Difference(point.time_us, last.time_us));
      output.WriteLittleEndian64(std::bit_cast<uint64_t>(point.value));
      last = point;
    }
  }
  return bytes;
}

std::optional<std::vector<PackedPoint>> DecodePoints(absl::string_view bytes) {
  CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                         static_cast<int>(bytes.size()));
  std::vector<PackedPoint> points;
  PackedPoint point;
  while (input.CurrentPosition() < static_cast<int>(bytes.size())) {
    google::protobuf::uint64 value = 0;
    if (!Add(input, point.cursor) || !Add(input, point.step) || !Add(input, point.time_us) ||
        !input.ReadLittleEndian64(&value)) {
      return std::nullopt;
    }
    point.value = std::bit_cast<double>(uint64_t{value});
    points.push_back(point);
  }
  return points;
}

}  // namespace trainyard::store
