// Tests bundles: what is written is read again, and nothing of a hostile one is believed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/bundle_errors.h"
#include "common/base/errors.h"
#include "common/bundle/reader.h"
#include "common/bundle/writer.h"
#include "common/bundle/zstd.h"
#include "common/tls/digest.h"

namespace trainyard::bundle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct NamedText {
  std::string name;
  std::string text;

  friend bool operator==(const NamedText&, const NamedText&) = default;
};

// Gives a text in pieces of odd sizes.
tar::Source SourceOfText(std::string text) {
  return [text = std::move(text), at = size_t{0}]() mutable -> absl::StatusOr<absl::string_view> {
    const absl::string_view piece = absl::string_view(text).substr(at, 1000);
    at += piece.size();
    return piece;
  };
}

Manifest ManifestOf(const std::vector<NamedText>& parts) {
  Manifest manifest;
  manifest.version = "1.2.3";
  manifest.time = "2026-11-20T22:57:55Z";
  manifest.server = "unix:/run/trainyard.sock";
  manifest.job = "jobs/12";
  manifest.uid = "0aeb";
  manifest.title = "resnet";
  manifest.user = "anna";
  for (const NamedText& part : parts) {
    manifest.entries.push_back(
        {part.name, static_cast<int64_t>(part.text.size()), tls::Sha256Text(part.text)});
  }
  return manifest;
}

std::string Packed(absl::string_view bytes) {
  std::string packed;
  Compressor compressor([&packed](absl::string_view block) {
    absl::StrAppend(&packed, block);
    return absl::OkStatus();
  });
  EXPECT_TRUE(compressor.Write(bytes).ok());
  EXPECT_TRUE(compressor.Finish().ok());
  return packed;
}

// Writes what `manifest_text` claims and then these files, whatever either says.
std::string Forged(const std::string& manifest_text, const std::vector<tar::Head>& heads,
                   const std::vector<NamedText>& files) {
  std::string bytes;
  const auto writer = *tar::Writer::Create(
      [&bytes](absl::string_view block) {
        absl::StrAppend(&bytes, block);
        return absl::OkStatus();
      },
      "test");
  tar::Head first;
  first.path = kManifestName;
  first.size = static_cast<int64_t>(manifest_text.size());
  EXPECT_TRUE(writer->Begin(first).ok());
  EXPECT_TRUE(writer->Write(manifest_text).ok());
  for (const NamedText& file : files) {
    tar::Head head;
    head.path = file.name;
    head.size = static_cast<int64_t>(file.text.size());
    EXPECT_TRUE(writer->Begin(head).ok());
    EXPECT_TRUE(writer->Write(file.text).ok());
  }
  for (const tar::Head& head : heads) EXPECT_TRUE(writer->Begin(head).ok());
  EXPECT_TRUE(writer->Finish().ok());
  return Packed(bytes);
}

std::string Written(const std::vector<NamedText>& parts) {
  std::string bytes;
  const auto writer = *BundleWriter::Create(
      [&bytes](absl::string_view block) {
        absl::StrAppend(&bytes, block);
        return absl::OkStatus();
      },
      ManifestOf(parts));
  for (const NamedText& part : parts) EXPECT_TRUE(writer->Add(SourceOfText(part.text)).ok());
  EXPECT_TRUE(writer->Finish().ok());
  return bytes;
}

struct Content {
  std::vector<NamedText> parts;
  std::vector<std::string> warnings;
};

absl::StatusOr<Content> ReadBytes(const std::string& bytes, const Limits& limits = {}) {
  auto reader = BundleReader::Open(SourceOfText(bytes), "b.trainyard", limits);
  if (!reader.ok()) return reader.status();
  Content content;
  content.warnings = (*reader)->warnings();
  while (true) {
    const auto entry = (*reader)->Next();
    if (!entry.ok()) return entry.status();
    if (*entry == nullptr) return content;
    auto text = (*reader)->ReadAll();
    if (!text.ok()) return text.status();
    content.parts.push_back({(*entry)->name, *std::move(text)});
  }
}

// Expects that the bytes are refused for this reason with these words.
void ExpectRefused(const std::string& bytes, absl::string_view reason, absl::string_view words,
                   const Limits& limits = {}) {
  const auto read = ReadBytes(bytes, limits);
  ASSERT_FALSE(read.ok()) << words;
  EXPECT_EQ(ErrorReason(read.status()), reason) << read.status();
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(std::string(words)));
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("b.trainyard"));
}

const std::vector<NamedText>& Parts() {
  static const auto* parts = new std::vector<NamedText>{
      {kJobName, "{}\n"},
      {kCodeName, std::string(3000, 'c')},
      {kMetricsName, ""},
      {CheckpointFileName(600, "optimizer/shard-0.pt"), std::string(100'000, 'w')},
      {LogName(0), "one\n"},
  };
  return *parts;
}

TEST(Bundle, WhatIsWrittenIsReadAgain) {
  const std::string bytes = Written(Parts());
  EXPECT_TRUE(absl::StartsWith(bytes, kMagic));
  EXPECT_LT(bytes.size(), 2000U) << "it is compressed";
  const auto content = ReadBytes(bytes);
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(content->parts, Parts());
  EXPECT_THAT(content->warnings, SizeIs(0));
  EXPECT_EQ(Written(Parts()), bytes) << "the same parts give the same bytes";
  const auto reader = *BundleReader::Open(SourceOfText(bytes), "b.trainyard");
  EXPECT_EQ(reader->manifest(), ManifestOf(Parts()));
}

TEST(Bundle, TheWriterNoticesAFileThatChanges) {
  const auto writer = *BundleWriter::Create([](absl::string_view) { return absl::OkStatus(); },
                                            ManifestOf({{kJobName, "four"}}));
  EXPECT_TRUE(absl::IsAborted(writer->Add(SourceOfText("fives"))));
}

TEST(Bundle, NamesArePartsOrNothing) {
  EXPECT_EQ(ParsePartName("checkpoints/600/model.safetensors").part, Part::kCheckpointFile);
  EXPECT_EQ(ParsePartName("checkpoints/600/a/b").file, "a/b");
  EXPECT_EQ(ParsePartName("checkpoints/600/a/b").step, 600);
  EXPECT_EQ(ParsePartName("logs/3.log").rank, 3);
  for (const char* name :
       {"checkpoints/600", "checkpoints/-1/a", "checkpoints/06/a", "checkpoints/600/../a",
        "checkpoints/600/.hidden", "logs/x.log", "logs/3", "job.jsonx", "", "bundle.json"}) {
    EXPECT_EQ(ParsePartName(name).part, Part::kUnknown) << name;
  }
}

TEST(Bundle, EachByteIsCheckedByItsHash) {
  const std::string text = ManifestText(ManifestOf({{kJobName, "right"}}));
  ExpectRefused(Forged(text, {}, {{kJobName, "wrong"}}), "CORRUPT_FILE", "'job.json' has the hash");
  ExpectRefused(Forged(text, {}, {{kJobName, "longer"}}), "CORRUPT_FILE", "has 6 bytes");
  ExpectRefused(Forged(text, {}, {}), "CORRUPT_FILE", "'job.json' is missing");
  // An entry that is passed over is checked too.
  const auto reader =
      *BundleReader::Open(SourceOfText(Forged(text, {}, {{kJobName, "wrong"}})), "b.trainyard");
  ASSERT_TRUE(reader->Next().ok());
  EXPECT_TRUE(absl::IsDataLoss(reader->Next().status()));
}

TEST(Bundle, NothingComesInThatIsNotListed) {
  const std::string text = ManifestText(ManifestOf({{kJobName, "right"}}));
  ExpectRefused(Forged(text, {}, {{kJobName, "right"}, {"more", ""}}), error::kBundleRefused,
                "it holds 'more'");
  ExpectRefused(Forged(text, {}, {{"/etc/passwd", "right"}}), error::kBundleRefused,
                "where 'job.json' is expected");
  tar::Head link;
  link.kind = tar::Head::Kind::kLink;
  link.path = kJobName;
  link.target = "/etc/passwd";
  ExpectRefused(Forged(text, {link}, {}), error::kBundleRefused, "is no file");
  tar::Head folder;
  folder.kind = tar::Head::Kind::kFolder;
  folder.path = kJobName;
  ExpectRefused(Forged(text, {folder}, {}), error::kBundleRefused, "is no file");
}

// Returns the list of one entry with something else in it.
std::string Changed(const std::string& from, const std::string& to) {
  const std::string text = ManifestText(ManifestOf({{kJobName, "right"}}));
  std::string changed = absl::StrReplaceAll(text, {{from, to}});
  EXPECT_NE(changed, text) << from;
  return changed;
}

TEST(Bundle, ListsThatAreNoneAreRefused) {
  struct Case {
    std::string text;
    std::string words;
  };
  const Case cases[] = {
      {"[]", "no JSON object"},
      {"{", "no JSON object"},
      {std::string(1000, '['), "no JSON object"},
      {Changed("\"1.0\"", "1"), "has the format ''"},
      {Changed("\"1.0\"", "\"one\""), "has the format 'one'"},
      {Changed("\"1.0\"", "\"0.9\""), "has the format '0.9'"},
      {Changed("entries", "entrances"), "lists no entries"},
      {Changed("job.json", "../job.json"), "no path that an entry may have"},
      {Changed("job.json", "/job.json"), "no path that an entry may have"},
      {Changed("job.json", "a\\u0001b"), "no path that an entry may have"},
      {Changed("job.json", "notes.txt"), "which is no part of one"},
      {Changed("job.json", "bundle.json"), "twice"},
      {Changed("\"size\": 5", "\"size\": -5"), "has no size"},
      {Changed("\"size\": 5", "\"size\": 1e99"), "has no size"},
      {Changed("\"size\": 5", "\"size\": \"5\""), "has no size"},
      {Changed("sha256:", "md5:"), "has no hash"},
      {Changed("\"hash\"", "\"hush\""), "has no hash"},
      {Changed("\"name\": \"job.json\"", "\"name\": 5"), "has no name"},
  };
  for (const Case& one : cases) {
    ExpectRefused(Forged(one.text, {}, {{kJobName, "right"}}), error::kBundleRefused, one.words);
  }
}

TEST(Bundle, NewerFormatsAreReadAsFarAsTheyAreKnown) {
  ExpectRefused(Forged(Changed("\"1.0\"", "\"2.0\""), {}, {}), error::kBundleTooNew,
                "update Trainyard");
  Manifest manifest = ManifestOf({{"notes/first.json", "note"}, {kJobName, "right"}});
  manifest.format_minor = 7;
  const std::string text = absl::StrReplaceAll(
      ManifestText(manifest),
      {{"\"version\"", "\"mood\": 1, \"version\""}, {"\"size\": 5", "\"color\": 2, \"size\": 5"}});
  const auto content =
      ReadBytes(Forged(text, {}, {{"notes/first.json", "note"}, {kJobName, "right"}}));
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_THAT(content->parts, ElementsAre(NamedText{kJobName, "right"}));
  ASSERT_THAT(content->warnings, SizeIs(2));
  EXPECT_THAT(content->warnings[0], HasSubstr("format 1.7"));
  EXPECT_THAT(content->warnings[1], HasSubstr("bundle.json entries color, bundle.json mood"));
}

TEST(Bundle, LimitsHold) {
  Limits small;
  small.entries = 2;
  ExpectRefused(Written(Parts()), error::kBundleTooLarge, "has 5 entries", small);
  Limits short_list;
  short_list.manifest_bytes = 100;
  ExpectRefused(Written(Parts()), error::kBundleTooLarge, "bundle.json has", short_list);
  Limits short_parts;
  short_parts.json_bytes = 2;
  ExpectRefused(Written(Parts()), error::kBundleTooLarge, "'job.json' has 3 B", short_parts);
}

TEST(Bundle, AStreamUnfoldsToNoMoreThanItsListSays) {
  // Between the list and the entry stand heads that are no entries, for ever.
  const std::string text = ManifestText(ManifestOf({{kJobName, "right"}}));
  std::string tar_bytes;
  const auto writer = *tar::Writer::Create(
      [&tar_bytes](absl::string_view block) {
        absl::StrAppend(&tar_bytes, block);
        return absl::OkStatus();
      },
      "test");
  tar::Head head;
  head.path = kManifestName;
  head.size = static_cast<int64_t>(text.size());
  ASSERT_TRUE(writer->Begin(head).ok());
  ASSERT_TRUE(writer->Write(text).ok());
  head.path = "padding";
  head.size = int64_t{64} << 20;
  ASSERT_TRUE(writer->Begin(head).ok());
  ASSERT_TRUE(writer->Write(std::string(size_t{64} << 20, '\0')).ok());
  ASSERT_TRUE(writer->Finish().ok());
  ExpectRefused(Packed(tar_bytes), error::kBundleRefused, "it holds 'padding'");
  // Zeros without end where the list should be.
  ExpectRefused(Packed(std::string(size_t{64} << 20, 'x')), "CORRUPT_FILE", "");
  Decompressor bomb(SourceOfText(Packed(std::string(size_t{8} << 20, '\0'))), "b.trainyard", 1000);
  absl::Status status;
  while (status.ok()) status = bomb.Next().status();
  EXPECT_EQ(ErrorReason(status), error::kBundleTooLarge);
}

TEST(Bundle, WhatIsCutOffOrForeignIsSaidToBe) {
  const std::string bytes = Written(Parts());
  for (size_t size = 0; size < bytes.size(); size += 7) {
    EXPECT_FALSE(ReadBytes(bytes.substr(0, size)).ok()) << size;
  }
  ExpectRefused(bytes.substr(0, bytes.size() - 3), "CORRUPT_FILE", "cut off");
  ExpectRefused("name: a\n", "CORRUPT_FILE", "zstd");
  ExpectRefused("", "CORRUPT_FILE", "");
}

}  // namespace
}  // namespace trainyard::bundle
