// Tests good and bad spec files, and the mistakes that are reported.
#include "client/spec_loader/spec_file.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::spec_loader {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SpecFile Load(absl::string_view text) {
  SpecFile file = ParseSpecFile("job.yaml", text);
  AddRuleMistakes(file, file.spec, {});
  return file;
}

std::string Messages(const SpecFile& file) {
  return RenderMistakes(file, /*color=*/false);
}

constexpr char kMinimal[] =
    "name: a\nmodel: {mlp: {}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1}\n"
    "optimizer: {sgd: {lr: 0.1}}\n";

// tests/data/specs/NAME.yaml must give exactly NAME.txt.
void ExpectGolden(const std::string& name) {
  const std::string base = trainyard::testing::SourcePath("tests/data/specs/" + name);
  SpecFile file = ParseSpecFile(name + ".yaml", *ReadFile(base + ".yaml"));
  AddRuleMistakes(file, file.spec, {});
  const auto golden = ReadFile(base + ".txt");
  ASSERT_TRUE(golden.ok()) << golden.status() << "\n" << Messages(file);
  EXPECT_EQ(Messages(file), *golden);
}

// The specs that come with the product must work.
TEST(SpecFile, TheJobsThatComeAlongHaveNoMistakes) {
  int jobs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(trainyard::testing::SourcePath("jobs"))) {
    if (entry.path().extension() != ".yaml") continue;
    auto file = ReadSpecFile(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status();
    AddRuleMistakes(*file, file->spec, {});
    EXPECT_EQ(Messages(*file), "") << entry.path();
    EXPECT_EQ(file->spec.name(), entry.path().stem().string());
    ++jobs;
  }
  EXPECT_GE(jobs, 12);
}

TEST(SpecFile, FiveMistakesAreFiveLocatedErrors) {
  ExpectGolden("five_mistakes");
  const std::string path = trainyard::testing::SourcePath("tests/data/specs/five_mistakes.yaml");
  auto file = ReadSpecFile(path);
  ASSERT_TRUE(file.ok());
  AddRuleMistakes(*file, file->spec, {});
  EXPECT_EQ(file->mistakes.size(), 5u);
}

TEST(SpecFile, WrongKindsOfValuesSayWhatWasExpected) {
  ExpectGolden("kinds");
}

TEST(SpecFile, WhatYamlAllowsAndSpecsDoNotIsRefused) {
  ExpectGolden("syntax");
}

TEST(SpecFile, LayersThatDoNotFitAreShownWhereTheyStand) {
  ExpectGolden("layers");
}

TEST(SpecFile, LayersWithoutOptionsAreBareWords) {
  const SpecFile file = Load(
      "name: a\nmodel:\n  layers:\n    stack:\n      - {name: c, conv2d: {channels: 4}}\n"
      "      - relu\n      - {from: [c, relu1], add: {}}\n      - flatten\n"
      "      - linear: {features: 10}\n"
      "data: {dataset: glyphs}\ntrain: {epochs: 1}\noptimizer: {sgd: {lr: 0.1}}\n");
  EXPECT_THAT(Messages(file), IsEmpty());
  const v1::LayersModel& model = file.spec.model().layers();
  ASSERT_EQ(model.stack_size(), 5);
  EXPECT_EQ(model.stack(0).name(), "c");
  EXPECT_TRUE(model.stack(1).has_relu());
  EXPECT_THAT(model.stack(2).from(), ElementsAre("c", "relu1"));
  EXPECT_TRUE(model.stack(3).has_flatten());
}

TEST(SpecFile, AGoodSpecHasNoMistakesAndHoldsItsValues) {
  const SpecFile file = Load(
      "name: full\n"
      "model:\n  convnet:\n    channels: [8, 16]\n    batch_norm: true\n"
      "data: {dataset: mnist, normalize: unit}\n"
      "train: {steps: 1e3, global_batch: +32, seed: 9007199254740991, precision: f32}\n"
      "optimizer: {sgd: {lr: 5e-1, momentum: .9}}\n"
      "schedule: cosine\n"
      "devices: 2\n"
      "checkpoint: {every: 500 steps}\n"
      "evaluate: {every: 10 min}\n"
      "time_limit: 1.5 h\n"
      "priority: -5\n");
  EXPECT_THAT(Messages(file), IsEmpty());
  EXPECT_THAT(file.spec.model().convnet().channels(), ElementsAre(8, 16));
  EXPECT_EQ(file.spec.data().normalize(), v1::NORMALIZE_UNIT);
  EXPECT_EQ(file.spec.train().steps(), 1000);
  EXPECT_EQ(file.spec.train().seed(), 9007199254740991u);
  EXPECT_EQ(file.spec.optimizer().sgd().momentum(), 0.9);
  EXPECT_TRUE(file.spec.schedule().has_cosine());
  EXPECT_EQ(file.spec.devices().count(), 2);
  EXPECT_EQ(file.spec.checkpoint().every().steps(), 500);
  EXPECT_EQ(file.spec.evaluate().every().time().seconds(), 600);
  EXPECT_EQ(file.spec.time_limit().seconds(), 5400);
  EXPECT_EQ(file.spec.priority(), -5);
}

TEST(SpecFile, JsonIsReadLikeYaml) {
  const SpecFile yaml = Load(kMinimal);
  const SpecFile json = Load(
      R"({"name": "a", "model": {"mlp": {}}, "data": {"dataset": "glyphs"},
          "train": {"epochs": 1}, "optimizer": {"sgd": {"lr": 0.1}}})");
  EXPECT_THAT(Messages(json), IsEmpty());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(yaml.spec, json.spec));
}

TEST(SpecFile, AMemberOfAOneofMayBeAKeyWithoutValueOrABareWord) {
  for (const char* model : {"model: {mlp: {}}", "model:\n  mlp:", "model: mlp"}) {
    const SpecFile file =
        Load(absl::StrCat("name: a\n", model, "\ndata: {dataset: glyphs}\ntrain: {epochs: 1}\n",
                          "optimizer: {sgd: {lr: 0.1}}\n"));
    EXPECT_THAT(Messages(file), IsEmpty()) << model;
    EXPECT_TRUE(file.spec.model().has_mlp()) << model;
  }
}

TEST(SpecFile, ANameThatLooksLikeANumberIsText) {
  const SpecFile file = Load(absl::StrCat("devices: {type: 1080}\n", kMinimal));
  EXPECT_THAT(Messages(file), IsEmpty());
  EXPECT_EQ(file.spec.devices().type(), "1080");
}

TEST(SpecFile, WhatIsMissingIsShownWhereItWouldStand) {
  const SpecFile file = Load("name: a\nmodel: {mlp: {}}\ndata: {}\ntrain: {epochs: 1}\n");
  EXPECT_THAT(Messages(file), HasSubstr("job.yaml:1:1: optimizer: must be given"));
  EXPECT_THAT(Messages(file), HasSubstr("job.yaml:3:1: data.dataset: must be given"));
  EXPECT_EQ(file.mistakes.size(), 2u);
}

TEST(SpecFile, RulesBetweenFieldsAreCheckedWhereAllElseIsRight) {
  const SpecFile file =
      Load(absl::StrCat("devices: 4\n", kMinimal, "schedule: {warmup_epochs: 2}"));
  EXPECT_THAT(Messages(file), HasSubstr("job.yaml:7:27: schedule.warmup_epochs: 2 is not shorter"));
}

TEST(SpecFile, ViolationsOfTheServerAreShownAtTheirPlace) {
  SpecFile file = Load(kMinimal);
  AddViolations(file, {{"spec.optimizer.sgd.lr", "is too bold"}, {"spec.train", "is odd"}},
                {"train"});
  EXPECT_EQ(Messages(file),
            "command line: train: is odd\n"
            "job.yaml:5:23: optimizer.sgd.lr: is too bold\n"
            "  5 | optimizer: {sgd: {lr: 0.1}}\n"
            "    |                       ^~~\n");
}

TEST(SpecFile, LabelsAreAMappingOfTexts) {
  const std::string head =
      "name: a\nmodel: {mlp: {}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1}\n"
      "optimizer: {sgd: {lr: 0.1}}\n";
  const SpecFile good = Load(head + "devices: {memory: 80 GiB, labels: {zone: a, rack: 12}}\n");
  EXPECT_THAT(good.mistakes, IsEmpty()) << Messages(good);
  EXPECT_EQ(good.spec.devices().labels().at("rack"), "12");
  EXPECT_EQ(good.spec.devices().memory().bytes(), int64_t{80} << 30);
  const SpecFile bad = Load(head + "devices: {memory: 80, labels: {zone: [a]}}\n");
  EXPECT_THAT(Messages(bad), HasSubstr("6:19: devices.memory: memory '80' needs a unit"));
  EXPECT_THAT(Messages(bad), HasSubstr("6:38: devices.labels.zone: expected a text, found a list"));
  EXPECT_THAT(Messages(Load(head + "devices: {labels: [a]}\n")),
              HasSubstr("devices.labels: expected names and values such as {zone: a}"));
}

TEST(SpecFile, ParametersOfAProgramKeepTheirTypes) {
  const SpecFile file = Load(
      "name: a\nprogram:\n  command: [run, \"{lr}\"]\n"
      "  params: {lr: .5, name: \"1.10\", on: true, words: [a, \"2\"], deep: {x: 1}}\n");
  EXPECT_THAT(Messages(file), IsEmpty());
  const auto& params = file.spec.program().params();
  EXPECT_EQ(params.at("lr"), "0.5");
  EXPECT_EQ(params.at("name"), "\"1.10\"");
  EXPECT_EQ(params.at("on"), "true");
  EXPECT_EQ(params.at("words"), "[\"a\",\"2\"]");
  EXPECT_EQ(params.at("deep"), "{\"x\":1}");
}

TEST(SpecFile, MistakesOfAProgramAreShownAtTheirPlace) {
  const SpecFile file = Load(
      "name: a\nmodel: {mlp: {}}\nprogram:\n  command: [run]\n  directory: code\n"
      "  env: {1A: b}\n");
  EXPECT_THAT(Messages(file), HasSubstr("job.yaml:5:14: program.directory: 'code'"));
  EXPECT_THAT(Messages(file), HasSubstr("job.yaml:6:13: program.env.1A: '1A'"));
}

TEST(SpecFile, DocumentsAreSplitAndKeepTheirLines) {
  const auto documents =
      SplitDocuments("many.yaml", "# head\n---\nname: a\n---\n# nothing\n---\nname: b\nx: 1\n");
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].text, "name: a");
  EXPECT_EQ(documents[0].first_line, 2);
  EXPECT_EQ(documents[1].first_line, 6);
  EXPECT_THAT(Messages(ParseSpecText(documents[1])), HasSubstr("many.yaml:8:1: x: unknown key"));
  EXPECT_EQ(SplitDocuments("empty.yaml", "").size(), 1u);
}

TEST(SpecFile, AMissingFileIsNotFound) {
  trainyard::testing::TempDir dir;
  const auto file = ReadSpecFile(dir.File("no-such.yaml"));
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("no-such.yaml"));
}

TEST(SpecFile, AnEmptyFileSaysSo) {
  EXPECT_THAT(Messages(Load("")), HasSubstr("job.yaml:1:1: the file is empty"));
  EXPECT_THAT(Messages(Load("- a\n- b\n")), HasSubstr("expected a mapping"));
}

TEST(SpecFile, MoreMistakesThanAnybodyReadsAreCounted) {
  std::string text;
  for (int i = 0; i < 80; ++i) absl::StrAppend(&text, "key", i, ": 1\n");
  EXPECT_THAT(Messages(Load(text)), HasSubstr("... and "));
}

TEST(SpecFile, AnEmptyFileIsOneMistake) {
  for (const char* text : {"", "# nothing\n", "- a\n- b\n", "text\n"}) {
    SpecFile file = ParseSpecFile("a.yaml", text);
    AddRuleMistakes(file, file.spec, {});
    EXPECT_EQ(file.mistakes.size(), 1u) << text << RenderMistakes(file, false);
  }
}

TEST(SpecFile, AWrongNumberOfDevicesIsOneMistake) {
  SpecFile file =
      ParseSpecFile("a.yaml",
                    "name: a\nmodel: {mlp: {}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1}\n"
                    "optimizer: {sgd: {lr: 0.1}}\ndevices: -1\n");
  AddRuleMistakes(file, file.spec, {});
  EXPECT_EQ(file.mistakes.size(), 1u) << RenderMistakes(file, false);
}

TEST(SpecFile, AMistakeOfAFlagIsNoneOfTheFile) {
  SpecFile file = ParseSpecFile("a.yaml", "name: a\n");
  AddViolations(file, {{"options.array_size", "10000000 is not accepted"}}, {});
  EXPECT_EQ(RenderMistakes(file, false), "command line: --array: 10000000 is not accepted\n");
}

}  // namespace
}  // namespace trainyard::spec_loader
