// Parses the header. It comes from other people's files, so it is read event by event, and refused
// at the byte where it is wrong.
#include "worker/checkpoint/safetensors_header.h"

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/strings.h"

namespace trainyard::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr char kMetadataKey[] = "__metadata__";
// The limit keeps the names of a hostile file from flooding the log.
constexpr size_t kMaxNameInMessage = 80;

std::string Shown(absl::string_view text) {
  return JsonQuote(text.substr(0, kMaxNameInMessage));
}

// Passes the text to the parser and counts what it has taken, so that messages can state the
// position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, uint64_t* taken) : at_(at), taken_(taken) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*taken_;
    return *this;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) { return !(a == b); }

 private:
  const char* at_;
  uint64_t* taken_;
};

// Receives the tokens of the header. Each callback returns false to stop with `status_` set.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const uint64_t* taken) : taken_(taken) {}

  absl::Status status() const { return status_; }
  SafetensorsHeader TakeHeader() { return std::move(header_); }
  uint64_t end_taken() const { return end_taken_; }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) return Enter(Place::kTop);
    if (place_ != Place::kTop) return Unexpected("an object");
    return Enter(is_metadata_ ? Place::kMetadata : Place::kTensor);
  }

  bool key(string_t& name) override {
    if (place_ == Place::kTop) return TopKey(name);
    if (place_ == Place::kMetadata) {
      if (header_.metadata.contains(name)) return Fail(absl::StrCat("duplicate key ", Shown(name)));
      field_ = name;
      return true;
    }
    return TensorKey(name);
  }

  bool end_object() override {
    if (place_ == Place::kTop) {
      end_taken_ = *taken_;
      return Enter(Place::kEnd);
    }
    if (place_ == Place::kTensor && !EndTensor()) return false;
    return Enter(Place::kTop);
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata.emplace(field_, value);
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype") return Unexpected("a string");
    if (DtypeBytes(value) == 0) return Fail(absl::StrCat("unknown dtype ", Shown(value)));
    dtype_ = value;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || field_ == "dtype") return Unexpected("an array");
    (field_ == "shape" ? shape_ : offsets_).emplace();
    return Enter(Place::kArray);
  }

  bool end_array() override { return Enter(Place::kTensor); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kArray) return Unexpected("a number");
    if (value > INT64_MAX) return Fail(absl::StrCat(value, " is too large for an int64"));
    (field_ == "shape" ? shape_ : offsets_)->push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(number_integer_t value) override {
    return Fail(absl::StrCat("negative number ", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Fail(absl::StrCat(Shown(text), " is not an integer of 64 bits"));
  }
  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool parse_error(std::size_t, const std::string& token,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("the header is not JSON, last read: ", Shown(token)));
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kArray, kEnd };

  bool Enter(Place place) {
    place_ = place;
    return true;
  }

  uint64_t position() const { return kLengthBytes + *taken_; }

  bool Fail(absl::string_view what) {
    status_ = BadByte(position(), what);
    return false;
  }

  bool Unexpected(absl::string_view what) {
    const bool in_entry =
        place_ == Place::kTensor || place_ == Place::kArray || place_ == Place::kMetadata;
    return Fail(absl::StrCat(
        what, in_entry ? absl::StrCat(" is not expected for ", Shown(field_), " of ", Shown(name_))
                       : " is not expected here; the header is an object of objects"));
  }

  bool TopKey(const std::string& name) {
    is_metadata_ = name == kMetadataKey;
    if (is_metadata_ ? seen_metadata_ : header_.tensors.contains(name)) {
      return Fail(absl::StrCat("duplicate key ", Shown(name)));
    }
    seen_metadata_ |= is_metadata_;
    name_ = name;
    field_.clear();
    name_position_ = position() - 1;
    dtype_.reset();
    shape_.reset();
    offsets_.reset();
    return true;
  }

  bool TensorKey(const std::string& field) {
    const bool is_duplicate = (field == "dtype" && dtype_.has_value()) ||
                              (field == "shape" && shape_.has_value()) ||
                              (field == "data_offsets" && offsets_.has_value());
    if (is_duplicate) {
      return Fail(absl::StrCat("duplicate key ", Shown(field), " of tensor ", Shown(name_)));
    }
    if (field != "dtype" && field != "shape" && field != "data_offsets") {
      return Fail(absl::StrCat("unknown key ", Shown(field), " of tensor ", Shown(name_),
                               "; there are dtype, shape and data_offsets"));
    }
    field_ = field;
    return true;
  }

  bool EndTensor() {
    if (!dtype_.has_value() || !shape_.has_value() || !offsets_.has_value()) {
      return Fail(absl::StrCat("tensor ", Shown(name_), " lacks ",
                               !dtype_.has_value()   ? "dtype"
                               : !shape_.has_value() ? "shape"
                                                     : "data_offsets"));
    }
    if (offsets_->size() != 2 || (*offsets_)[0] > (*offsets_)[1]) {
      return Fail(absl::StrCat("data_offsets of tensor ", Shown(name_), " are [",
                               FirstOf(*offsets_), "]; expected [begin, end]"));
    }
    TensorInfo info{*dtype_, std::move(*shape_), static_cast<uint64_t>((*offsets_)[0]),
                    static_cast<uint64_t>((*offsets_)[1]), name_position_};
    uint64_t size = DtypeBytes(info.dtype);
    for (const int64_t dimension : info.shape) {
      if (__builtin_mul_overflow(size, static_cast<uint64_t>(dimension), &size)) {
        return Fail(absl::StrCat("shape [", FirstOf(info.shape), "] of tensor ", Shown(name_),
                                 " has more bytes than an u64 counts"));
      }
    }
    if (size != info.end - info.begin) {
      return Fail(absl::StrCat("tensor ", Shown(name_), " of shape [", FirstOf(info.shape),
                               "] and dtype ", info.dtype, " has ", size,
                               " bytes; its data_offsets [", info.begin, ", ", info.end, "] hold ",
                               info.end - info.begin));
    }
    header_.tensors.emplace(name_, std::move(info));
    return true;
  }

  // The length is enough to recognise a list.
  static std::string FirstOf(const std::vector<int64_t>& values) {
    constexpr size_t kShown = 8;
    if (values.size() <= kShown) return absl::StrJoin(values, ", ");
    return absl::StrCat(absl::StrJoin(values.begin(), values.begin() + kShown, ", "), ", ...");
  }

  const uint64_t* taken_;
  absl::Status status_;
  SafetensorsHeader header_;
  Place place_ = Place::kStart;
  uint64_t end_taken_ = 0;
  bool seen_metadata_ = false;
  // The entry that is being read, and the key in it.
  bool is_metadata_ = false;
  std::string name_;
  uint64_t name_position_ = 0;
  std::string field_;
  std::optional<std::string> dtype_;
  std::optional<std::vector<int64_t>> shape_;
  std::optional<std::vector<int64_t>> offsets_;
};

}  // namespace

uint64_t DtypeBytes(absl::string_view dtype) {
  static constexpr std::pair<absl::string_view, uint64_t> kDtypes[] = {
      {"F32", 4}, {"F64", 8}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
      {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1},
  };
  for (const auto& [name, bytes] : kDtypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

absl::Status BadByte(uint64_t position, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("byte ", position, ": ", what));
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json) {
  if (json.empty() || json.front() != '{') {
    return BadByte(kLengthBytes, absl::StrCat("the header starts with ", Shown(json.substr(0, 1)),
                                              "; expected \"{\""));
  }
  uint64_t taken = 0;
  HeaderReader reader(&taken);
  const bool parsed = Json::sax_parse(CountingIterator(json.data(), &taken),
                                      CountingIterator(json.data() + json.size(), &taken), &reader,
                                      Json::input_format_t::json, /*strict=*/false);
  if (!parsed) return reader.status();
  // Only padding may follow. It is checked here, since the parser takes a NUL for the end of its
  // input.
  const size_t extra = json.find_first_not_of(' ', reader.end_taken());
  if (extra != absl::string_view::npos) {
    return BadByte(kLengthBytes + extra,
                   absl::StrCat("the header continues with ", Shown(json.substr(extra, 16)),
                                " behind its object; expected spaces"));
  }
  return reader.TakeHeader();
}

}  // namespace trainyard::checkpoint
