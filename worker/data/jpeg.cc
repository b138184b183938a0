// Wraps libjpeg. It reports errors by calling back, and the call must not return. Each function
// here that enters the library therefore sets the place to jump back to, and holds no object with a
// destructor.
#include "worker/data/jpeg.h"

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs the headers above it, and jerror.h needs jpeglib.h.
#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/data/resample.h"

namespace trainyard::data {
namespace {

// A progressive image has some ten scans, each of which costs a pass over all pixels.
constexpr int kMaxScans = 100;
// The first scan of an image has at least a bit for each block of 64 pixels, so a file that claims
// more pixels than this is a bomb, or ends too early.
constexpr int64_t kMaxPixelsPerByte = 512;
// All coefficients of an image in several scans are in memory at a time. These limits let
// photographs of 20 million pixels pass however small their files are, and larger ones in files as
// large as cameras write.
constexpr int64_t kMaxCoefficientBytes = int64_t{64} << 20;
constexpr int64_t kMaxCoefficientBytesPerByte = 16;
constexpr int kFullScale = 8;  // in eighths
// The number of pixels beside the part that affect the colours at its border.
constexpr int64_t kMargin = 2;

struct ErrorManager {
  jpeg_error_mgr base;  // is first, because libjpeg hands out a pointer to it
  jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
  JpegCheck check;
};

[[noreturn]] void ErrorExit(j_common_ptr info) {
  auto* errors = reinterpret_cast<ErrorManager*>(info->err);
  info->err->format_message(info, errors->message);
  longjmp(errors->jump, 1);
}

// Returns true if the data that libjpeg passes over now is padding, which has one value. At this
// moment the source stands behind it.
bool IsPadding(const jpeg_common_struct* info) {
  const auto* source = reinterpret_cast<const jpeg_decompress_struct*>(info)->src;
  const int count = info->err->msg_parm.i[0];
  const JOCTET* end = source->next_input_byte;
  return std::all_of(end - count, end, [end](JOCTET byte) { return byte == end[-1]; });
}

// Tells the warnings that mean damage to the pixels. After the first five, libjpeg continues with
// grey pixels or makes up what is missing. Data that is left over (see JpegCheck) is damage only
// amid the pixels' data: before it, it is a segment of metadata whose length is wrong. The other
// warnings are about metadata too (JFIF's version, Adobe's transform, colour profiles), or about
// parameters that the data does not need, which some encoders write wrongly.
bool IsDamage(const jpeg_common_struct* info) {
  switch (info->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
      return true;
    case JWRN_EXTRANEOUS_DATA:
      return reinterpret_cast<const ErrorManager*>(info->err)->check == JpegCheck::kToTheEnd &&
             reinterpret_cast<const jpeg_decompress_struct*>(info)->input_scan_number > 0 &&
             !IsPadding(info);
    default:
      return false;
  }
}

void EmitMessage(j_common_ptr info, int level) {
  if (level < 0 && IsDamage(info)) ErrorExit(info);
}

void OutputNothing(j_common_ptr) {}

void CheckScans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  auto* errors = reinterpret_cast<ErrorManager*>(info->err);
  std::snprintf(errors->message, sizeof(errors->message), "over %d scans are not accepted",
                kMaxScans);
  longjmp(errors->jump, 1);
}

// Returns the smallest of 1, 2, 4 and 8 eighths at which the framing still has as many pixels as
// the sample. The scales in between have no vector code.
int ScaleOf(const Framing& framing, int64_t out_width, int64_t out_height) {
  int scale = 1;
  while (scale < kFullScale && (framing.width * scale < static_cast<double>(out_width * 8) ||
                                framing.height * scale < static_cast<double>(out_height * 8))) {
    scale *= 2;
  }
  return scale;
}

// The range [begin, end) of `size` pixels that contains this part of the framing.
struct Range {
  int64_t begin;
  int64_t end;
};
Range Cover(double begin, double length, int64_t size, int64_t margin) {
  const auto low = static_cast<int64_t>(std::floor(begin)) - margin;
  const auto high = static_cast<int64_t>(std::ceil(begin + length)) + margin;
  const int64_t first = std::clamp<int64_t>(low, 0, size - 1);
  return {first, std::clamp<int64_t>(high, first + 1, size)};
}

// Adobe writes CMYK inverted.
void CmykToRgb(const std::vector<uint8_t>& cmyk, bool is_inverted, std::vector<uint8_t>& rgb) {
  rgb.resize(cmyk.size() / 4 * 3);
  for (size_t p = 0; p < cmyk.size() / 4; ++p) {
    const auto level = [&](size_t i) {
      return is_inverted ? cmyk[4 * p + i] : 255 - cmyk[4 * p + i];
    };
    for (size_t c = 0; c < 3; ++c) {
      rgb[3 * p + c] = static_cast<uint8_t>(level(c) * level(3) / 255);
    }
  }
}

}  // namespace

class JpegReader::Impl {
 public:
  Impl(absl::string_view bytes, JpegCheck check) : bytes_(bytes) {
    errors_.check = check;
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = ErrorExit;
    errors_.base.emit_message = EmitMessage;
    errors_.base.output_message = OutputNothing;
    progress_.progress_monitor = CheckScans;
  }
  ~Impl() { jpeg_destroy_decompress(&info_); }

  absl::Status ReadHeader() {
    if (!EnterHeader()) return Failure();
    if (width() * height() > kMaxJpegPixels) {
      return absl::DataLossError(absl::StrCat("byte ", Position(), ": an image of ", width(), " x ",
                                              height(), " pixels; at most ", kMaxJpegPixels,
                                              " are accepted"));
    }
    const auto size = static_cast<int64_t>(bytes_.size());
    if (width() * height() > kMaxPixelsPerByte * size) {
      return absl::DataLossError(absl::StrCat(
          "byte ", Position(), ": an image of ", width(), " x ", height(), " pixels in a file of ",
          size, " bytes; a byte holds ", kMaxPixelsPerByte, " pixels at most"));
    }
    const int64_t limit = kMaxCoefficientBytes + kMaxCoefficientBytesPerByte * size;
    if (CoefficientBytes() > limit) {
      return absl::DataLossError(absl::StrCat(
          "byte ", Position(), ": an image of ", width(), " x ", height(),
          " pixels in several scans, which takes ", CoefficientBytes(), " bytes to decode; ", limit,
          " are accepted for a file of ", size, " bytes; store it in one scan"));
    }
    // The whole image is checked. If only the part that is read were checked, a truncated image
    // would be corrupt in some epochs only.
    const size_t end = bytes_.rfind("\xff\xd9");
    if (end == absl::string_view::npos || end < Position()) {
      return absl::DataLossError(absl::StrCat(
          "byte ", bytes_.size(), ": the file ends without the end mark of a JPEG, 0xffd9"));
    }
    return absl::OkStatus();
  }

  int64_t width() const { return info_.image_width; }
  int64_t height() const { return info_.image_height; }

  absl::Status Read(const Framing& framing, int64_t out_width, int64_t out_height,
                    absl::Span<float> out) {
    scale_ = ScaleOf(framing, out_width, out_height);
    if (!EnterStart()) return Failure();
    const double x_scale = static_cast<double>(info_.output_width) / static_cast<double>(width());
    const double y_scale = static_cast<double>(info_.output_height) / static_cast<double>(height());
    Framing part = {.x = framing.x * x_scale,
                    .y = framing.y * y_scale,
                    .width = framing.width * x_scale,
                    .height = framing.height * y_scale,
                    .flip = framing.flip};
    columns_ = Cover(part.x, part.width, info_.output_width, kMargin);
    rows_ = Cover(part.y, part.height, info_.output_height, 0);
    if (!EnterCrop()) return Failure();
    part.x -= static_cast<double>(columns_.begin);
    part.y -= static_cast<double>(rows_.begin);
    const auto row_bytes =
        static_cast<size_t>(info_.output_width) * static_cast<size_t>(info_.output_components);
    pixels_.resize(row_bytes * static_cast<size_t>(rows_.end - rows_.begin));
    if (!EnterRows(row_bytes)) return Failure();
    if (info_.out_color_space == JCS_CMYK) {
      std::vector<uint8_t> rgb;
      CmykToRgb(pixels_, info_.saw_Adobe_marker != 0, rgb);
      pixels_ = std::move(rgb);
    }
    const int64_t part_width = info_.output_width;
    Resample(
        ImageView<uint8_t>{pixels_.data(), part_width, rows_.end - rows_.begin, 3, 3 * part_width},
        part, out_width, out_height, out);
    return absl::OkStatus();
  }

 private:
  // These return false after an error of libjpeg, whose message is in errors_.
  bool EnterHeader() {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  bool EnterStart() {
    if (setjmp(errors_.jump) != 0) return false;
    const bool is_cmyk = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
    info_.scale_num = static_cast<unsigned>(scale_);
    info_.scale_denom = kFullScale;
    jpeg_start_decompress(&info_);
    return true;
  }

  // Widens columns_ to the borders of blocks.
  bool EnterCrop() {
    if (setjmp(errors_.jump) != 0) return false;
    if (columns_.begin > 0 || columns_.end < info_.output_width) {
      auto begin = static_cast<JDIMENSION>(columns_.begin);
      auto count = static_cast<JDIMENSION>(columns_.end - columns_.begin);
      jpeg_crop_scanline(&info_, &begin, &count);
      columns_ = {begin, begin + count};
    }
    if (rows_.begin > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(rows_.begin));
    return true;
  }

  bool EnterRows(size_t row_bytes) {
    if (setjmp(errors_.jump) != 0) return false;
    const auto count = static_cast<JDIMENSION>(rows_.end - rows_.begin);
    const JDIMENSION first = info_.output_scanline;
    while (info_.output_scanline < first + count) {
      constexpr JDIMENSION kRows = 16;
      JSAMPROW rows[kRows];
      const JDIMENSION done = info_.output_scanline - first;
      const JDIMENSION wanted = std::min(kRows, count - done);
      for (JDIMENSION i = 0; i < wanted; ++i) rows[i] = pixels_.data() + (done + i) * row_bytes;
      jpeg_read_scanlines(&info_, rows, wanted);
    }
    const bool has_all_rows = info_.output_scanline == info_.output_height;
    if (errors_.check == JpegCheck::kToTheEnd && has_all_rows) jpeg_finish_decompress(&info_);
    jpeg_abort_decompress(&info_);
    return true;
  }

  // Returns the bytes of the coefficients that are in memory at a time, which are all of them if
  // the image has several scans.
  int64_t CoefficientBytes() {
    if (jpeg_has_multiple_scans(&info_) == FALSE) return 0;
    int64_t blocks = 0;
    for (int i = 0; i < info_.num_components; ++i) {
      blocks += static_cast<int64_t>(info_.comp_info[i].width_in_blocks) *
                static_cast<int64_t>(info_.comp_info[i].height_in_blocks);
    }
    return blocks * static_cast<int64_t>(sizeof(JBLOCK));
  }

  size_t Position() const {
    return info_.src == nullptr ? 0 : bytes_.size() - info_.src->bytes_in_buffer;
  }

  absl::Status Failure() const {
    // At the end of the data, libjpeg makes up an end mark.
    const bool is_at_end = errors_.base.msg_code == JWRN_JPEG_EOF;
    return absl::DataLossError(
        absl::StrCat("byte ", is_at_end ? bytes_.size() : Position(), ": ", errors_.message));
  }

  const absl::string_view bytes_;
  jpeg_decompress_struct info_{};
  ErrorManager errors_{};
  jpeg_progress_mgr progress_{};
  int scale_ = kFullScale;
  Range columns_{};
  Range rows_{};
  // The pixels are [rows, columns, components]. The buffer belongs to the thread: allocating half a
  // megabyte for each image would cost a tenth of the time in page faults.
  static thread_local std::vector<uint8_t> pixels_;
};

thread_local std::vector<uint8_t> JpegReader::Impl::pixels_;

JpegReader::JpegReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JpegReader::~JpegReader() = default;

absl::StatusOr<std::unique_ptr<JpegReader>> JpegReader::Open(absl::string_view bytes,
                                                             JpegCheck check) {
  if (bytes.empty()) return absl::DataLossError("byte 0: the file is empty");
  auto impl = std::make_unique<Impl>(bytes, check);
  absl::Status status = impl->ReadHeader();
  if (!status.ok()) return status;
  return std::unique_ptr<JpegReader>(new JpegReader(std::move(impl)));
}

int64_t JpegReader::width() const {
  return impl_->width();
}
int64_t JpegReader::height() const {
  return impl_->height();
}
absl::Status JpegReader::Read(const Framing& framing, int64_t out_width, int64_t out_height,
                              absl::Span<float> out) {
  return impl_->Read(framing, out_width, out_height, out);
}

}  // namespace trainyard::data
