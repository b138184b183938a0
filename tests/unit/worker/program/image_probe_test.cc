// Tests what is noted of the image of a container, with a podman that is a script.
#include "worker/program/image_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "worker/program/environment_probe.h"

namespace trainyard::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kDigits(64, 'a');

run_dir::Isolation ContainerOf(const std::string& runtime, const std::string& path) {
  return {run_dir::IsolationLevel::kContainer, runtime, path, ""};
}

TEST(QuestionAbout, AsksWhoeverKnowsTheImage) {
  const run_dir::Isolation podman = ContainerOf("podman", "/usr/bin/podman");
  const ImageQuestion asked = QuestionAbout(podman, {"debian:12"});
  EXPECT_THAT(asked.words, ElementsAre("/usr/bin/podman", "image", "inspect", "--format",
                                       "{{.Digest}}", "debian:12"));
  EXPECT_TRUE(asked.is_fetched) << "podman may have to fetch it first";
  for (const char* runtime : {"podman", "apptainer", "charliecloud", "enroot"}) {
    const run_dir::Isolation any = ContainerOf(runtime, "/usr/bin/runtime");
    const ImageQuestion file = QuestionAbout(any, {"/a.sif", Image::Kind::kFile});
    EXPECT_THAT(file.words, ElementsAre("sha256sum")) << runtime;
    EXPECT_EQ(file.input, "/a.sif");
    EXPECT_FALSE(file.is_fetched);
    const ImageQuestion folder = QuestionAbout(any, {"/a", Image::Kind::kFolder});
    EXPECT_THAT(folder.words, ElementsAre()) << runtime;
    EXPECT_EQ(folder.answer, kNoImageDigest);
  }
  EXPECT_EQ(QuestionAbout(ContainerOf("charliecloud", "ch-run"), {"debian"}).answer,
            kNoImageDigest);
  const ImageQuestion unknown = QuestionAbout(ContainerOf("apptainer", "apptainer"), {"debian:12"});
  EXPECT_TRUE(unknown.words.empty());
  EXPECT_EQ(unknown.answer, "");
}

TEST(DigestIn, TakesNothingButADigest) {
  const std::string digest = absl::StrCat("sha256:", kDigits);
  EXPECT_EQ(DigestIn(digest + "\n"), digest);
  EXPECT_EQ(DigestIn(kDigits + "  -\n"), digest);
  for (const std::string& other :
       {std::string(), std::string("\n"), std::string("Error: no such image"), kDigits + "a",
        kDigits.substr(1), "sha256:" + std::string(64, 'G'), "md5:" + kDigits}) {
    EXPECT_EQ(DigestIn(other), "") << other;
  }
}

class ImageProbing : public ::testing::Test {
 protected:
  // Makes a podman that does this when it is asked for a digest.
  ImageQuestion Podman(const std::string& script) {
    const std::string path = dir_.Write("podman", absl::StrCat("#!/bin/sh\n", script, "\n"));
    EXPECT_EQ(chmod(path.c_str(), 0700), 0);
    return QuestionAbout(ContainerOf("podman", path), {"debian:12"});
  }
  static bool Await(ImageProbe& probe) {
    return testing::WaitUntil(
        [&] {
          probe.Look();
          return probe.is_done();
        },
        absl::Seconds(60));
  }

  testing::ManualClock clock_;
  testing::TempDir dir_;
};

TEST_F(ImageProbing, ADigestIsAskedForUntilTheImageIsThere) {
  ImageProbe probe(
      Podman(absl::StrCat("echo asked >>", dir_.File("calls"), "\ntest -e ", dir_.File("fetched"),
                          " || exit 125\necho sha256:", kDigits)),
      clock_);
  const auto has_asked = [&](const std::string& calls) {
    return testing::WaitUntil(
        [&] {
          probe.Look();
          return ReadFile(dir_.File("calls")).value_or("") == calls && probe.fd() < 0;
        },
        absl::Seconds(60));
  };
  EXPECT_TRUE(has_asked("asked\n"));
  probe.Look();
  EXPECT_LT(probe.fd(), 0) << "it waits before it asks again";
  clock_.Advance(absl::Seconds(5));
  EXPECT_TRUE(has_asked("asked\nasked\n"));
  EXPECT_FALSE(probe.is_done());
  dir_.Write("fetched", "");
  clock_.Advance(absl::Seconds(5));
  EXPECT_TRUE(Await(probe));
  EXPECT_EQ(probe.digest(), absl::StrCat("sha256:", kDigits));
}

TEST_F(ImageProbing, APodmanThatNeverAnswersIsEnded) {
  ImageProbe probe(Podman(absl::StrCat("touch ", dir_.File("asked"), "\nexec sleep 1000")), clock_);
  EXPECT_TRUE(testing::WaitUntil(
      [&] {
        probe.Look();
        return FileExists(dir_.File("asked"));
      },
      absl::Seconds(60)));
  EXPECT_FALSE(probe.is_done());
  clock_.Advance(absl::Minutes(11));
  probe.Look();
  EXPECT_TRUE(probe.is_done());
  EXPECT_EQ(probe.digest(), "");
}

TEST_F(ImageProbing, AfterTheProgramThereIsOneMoreQuestion) {
  ImageProbe probe(Podman("exit 125"), clock_);
  EXPECT_TRUE(testing::WaitUntil(
      [&] {
        probe.Look();
        return probe.fd() >= 0;
      },
      absl::Seconds(60)));
  probe.Finish();
  EXPECT_TRUE(Await(probe)) << "without a move of the clock";
  EXPECT_EQ(probe.digest(), "");
}

TEST_F(ImageProbing, AFileHasTheDigestOfItsContent) {
  const Image image = {dir_.Write("a.sif", "abc"), Image::Kind::kFile};
  ImageProbe probe(QuestionAbout(ContainerOf("apptainer", "apptainer"), image), clock_);
  EXPECT_TRUE(Await(probe));
  EXPECT_EQ(probe.digest(),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const Image missing = {dir_.File("b.sif"), Image::Kind::kFile};
  ImageProbe other(QuestionAbout(ContainerOf("apptainer", "apptainer"), missing), clock_);
  EXPECT_TRUE(Await(other));
  EXPECT_EQ(other.digest(), "");
}

TEST_F(ImageProbing, TheEnvironmentIsWrittenWithTheDigestOrWithoutIt) {
  const auto written = [&](ImageQuestion question) {
    const std::string path = dir_.File("environment.json");
    EnvironmentProbe probe(path, *Clock::Real(), std::move(question));
    probe.Finish();
    return ReadFile(path).value_or("");
  };
  EXPECT_THAT(written({.answer = kNoImageDigest}),
              HasSubstr("\"image_digest\":\"none: the image is a folder\""));
  EXPECT_THAT(written(Podman("exit 125")), Not(HasSubstr("image_digest")));
  EXPECT_THAT(written({.words = {dir_.File("missing")}}), Not(HasSubstr("image_digest")));
}

}  // namespace
}  // namespace trainyard::program
