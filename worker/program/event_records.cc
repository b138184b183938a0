// Reads the few fields that matter from the wire format of protocol buffers by itself, because the
// runner of a program is started for each rank and links no library of messages.
#include "worker/program/event_records.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "common/base/crc32c.h"

namespace trainyard::program {
namespace {

constexpr uint64_t kHeadBytes = 12;  // a length and its CRC
constexpr uint64_t kTailBytes = 4;
// Numbers are little-endian, as this machine's are.
template <typename Number>
Number NumberAt(absl::string_view bytes) {
  Number number{};
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

// One field of a message.
struct Field {
  uint64_t number = 0;
  uint64_t integer = 0;          // of the varint and the fixed types
  absl::string_view bytes = {};  // of the other type
  enum class Type { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 } type = Type::kVarint;
};

// Reads the fields of one message. Groups, which are not in use any more, end it.
class Fields {
 public:
  explicit Fields(absl::string_view message) : rest_(message) {}

  bool is_broken() const { return is_broken_; }
  std::optional<Field> Next() {
    if (rest_.empty() || is_broken_) return std::nullopt;
    Field field;
    uint64_t key = 0;
    if (!Varint(key)) return Break();
    field.number = key >> 3;
    field.type = static_cast<Field::Type>(key & 7);
    switch (field.type) {
      case Field::Type::kVarint:
        if (!Varint(field.integer)) return Break();
        return field;
      case Field::Type::kFixed64:
        if (!Take(8, field.bytes)) return Break();
        field.integer = NumberAt<uint64_t>(field.bytes);
        return field;
      case Field::Type::kFixed32:
        if (!Take(4, field.bytes)) return Break();
        field.integer = NumberAt<uint32_t>(field.bytes);
        return field;
      case Field::Type::kBytes: {
        uint64_t size = 0;
        if (!Varint(size) || !Take(size, field.bytes)) return Break();
        return field;
      }
    }
    return Break();
  }

 private:
  std::optional<Field> Break() {
    is_broken_ = true;
    return std::nullopt;
  }
  bool Varint(uint64_t& value) {
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }
  bool Take(uint64_t size, absl::string_view& bytes) {
    if (size > rest_.size()) return false;
    bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  absl::string_view rest_;
  bool is_broken_ = false;
};

double DoubleOf(const Field& field) {
  double value = 0;
  std::memcpy(&value, &field.integer, sizeof value);
  return value;
}

double FloatOf(const Field& field) {
  const auto bits = static_cast<uint32_t>(field.integer);
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<double>(value);
}

// tensorflow.DataType
enum DataType : uint64_t { kFloat = 1, kDouble = 2, kInt32 = 3, kInt64 = 9 };

// Returns the number of a tensor that has one, whose bytes are those of its type.
std::optional<double> NumberOf(uint64_t type, absl::string_view content) {
  if (type == kFloat && content.size() == 4) return static_cast<double>(NumberAt<float>(content));
  if (type == kDouble && content.size() == 8) return NumberAt<double>(content);
  if (type == kInt32 && content.size() == 4) return static_cast<double>(NumberAt<int32_t>(content));
  if (type == kInt64 && content.size() == 8) return static_cast<double>(NumberAt<int64_t>(content));
  return std::nullopt;
}

// Reads tensorflow.TensorProto.
std::optional<double> ReadTensor(absl::string_view message, bool& is_broken) {
  uint64_t type = 0;
  std::optional<double> value;
  Fields fields(message);
  while (const auto field = fields.Next()) {
    const bool is_fixed32 = field->type == Field::Type::kFixed32;
    const bool is_fixed64 = field->type == Field::Type::kFixed64;
    switch (field->number) {
      case 1:  // dtype
        type = field->integer;
        break;
      case 4:  // tensor_content
        value = NumberOf(type, field->bytes);
        break;
      case 5:  // float_val, packed or not
        value = is_fixed32 ? FloatOf(*field) : NumberOf(kFloat, field->bytes);
        break;
      case 6:  // double_val
        value = is_fixed64 ? DoubleOf(*field) : NumberOf(kDouble, field->bytes);
        break;
      case 7:     // int_val
      case 10: {  // int64_val
        uint64_t integer = field->integer;
        if (field->type == Field::Type::kBytes) {
          // A list of one number, with the key that it would have by itself before it.
          const std::string single = '\x08' + std::string(field->bytes);
          Fields one(single);
          const auto only = one.Next();
          if (!only.has_value() || one.Next().has_value()) break;
          integer = only->integer;
        }
        value = static_cast<double>(static_cast<int64_t>(integer));
        break;
      }
      default:
        break;
    }
  }
  is_broken |= fields.is_broken();
  return value;
}

// Reads tensorflow.Summary.Value.
bool ReadValue(absl::string_view message, Scalar scalar, std::vector<Scalar>& scalars) {
  std::optional<double> value;
  bool is_broken = false;
  Fields fields(message);
  while (const auto field = fields.Next()) {
    const bool is_bytes = field->type == Field::Type::kBytes;
    if (field->number == 1 && is_bytes) scalar.tag = std::string(field->bytes);
    if (field->number == 2 && field->type == Field::Type::kFixed32) value = FloatOf(*field);
    if (field->number == 8 && is_bytes) value = ReadTensor(field->bytes, is_broken);
  }
  if (fields.is_broken() || is_broken) return false;
  if (value.has_value() && !scalar.tag.empty()) {
    scalar.value = *value;
    scalars.push_back(std::move(scalar));
  }
  return true;
}

}  // namespace

Record NextRecord(absl::string_view bytes, uint64_t max_bytes) {
  if (bytes.size() < kHeadBytes) return {Record::Kind::kTorn, kHeadBytes};
  const auto length = NumberAt<uint64_t>(bytes);
  const bool is_length = NumberAt<uint32_t>(bytes.substr(8)) == MaskedCrc32c(bytes.substr(0, 8));
  if (!is_length || length > uint64_t{1} << 40) return {Record::Kind::kUnreadable, 0};
  const uint64_t all = kHeadBytes + length + kTailBytes;
  if (length > max_bytes) return {Record::Kind::kTooLarge, all};
  if (bytes.size() < all) return {Record::Kind::kTorn, all};
  const absl::string_view event = bytes.substr(kHeadBytes, length);
  const auto crc = NumberAt<uint32_t>(bytes.substr(kHeadBytes + length));
  if (crc != MaskedCrc32c(event)) return {Record::Kind::kDamaged, all};
  return {Record::Kind::kWhole, all, event};
}

bool ReadScalars(absl::string_view event, std::vector<Scalar>& scalars) {
  Scalar of;
  std::vector<absl::string_view> summaries;
  Fields fields(event);
  while (const auto field = fields.Next()) {
    if (field->number == 1 && field->type == Field::Type::kFixed64) of.wall_time = DoubleOf(*field);
    if (field->number == 2 && field->type == Field::Type::kVarint) {
      of.step = static_cast<int64_t>(field->integer);
    }
    if (field->number == 5 && field->type == Field::Type::kBytes) summaries.push_back(field->bytes);
  }
  if (fields.is_broken()) return false;
  for (const absl::string_view summary : summaries) {
    Fields values(summary);
    while (const auto value = values.Next()) {
      const bool is_value = value->number == 1 && value->type == Field::Type::kBytes;
      if (is_value && !ReadValue(value->bytes, of, scalars)) return false;
    }
    if (values.is_broken()) return false;
  }
  return true;
}

}  // namespace trainyard::program
