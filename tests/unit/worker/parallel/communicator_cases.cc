// Tests collectives, messages and failures, which every communicator must handle in the same way.
#include "tests/unit/worker/parallel/communicator_cases.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "worker/parallel/collective.h"

namespace trainyard::parallel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Element i of the data of `rank`: small integers, so that sums are exact.
float Value(int rank, size_t i) {
  return static_cast<float>((rank + 1) * static_cast<int>(i % 97));
}

std::vector<float> Values(int rank, size_t size) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = Value(rank, i);
  return values;
}

float Sum(int world_size, size_t i) {
  float sum = 0;
  for (int rank = 0; rank < world_size; ++rank) sum += Value(rank, i);
  return sum;
}

absl::Status Unless(bool good, absl::string_view what) {
  return good ? absl::OkStatus() : absl::InternalError(what);
}

}  // namespace

TEST_P(CommunicatorTest, AllReduceSumsOddSizes) {
  ExpectAllOk([](Communicator& communicator) -> absl::Status {
    const int ranks = communicator.world_size();
    for (const size_t size : {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{1000},
                              size_t{65537}, size_t{600001}}) {
      std::vector<float> values = Values(communicator.rank(), size);
      TY_RETURN_IF_ERROR(communicator.AllReduce(absl::MakeSpan(values)));
      for (size_t i = 0; i < size; ++i) {
        TY_RETURN_IF_ERROR(Unless(values[i] == Sum(ranks, i), "all_reduce gave a wrong sum"));
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorTest, AllRanksGetTheSameBits) {
  std::vector<std::vector<float>> results(static_cast<size_t>(world_size()));
  ExpectAllOk([&results](Communicator& communicator) -> absl::Status {
    std::vector<float> values(1001);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 1.0F / static_cast<float>(1 + communicator.rank() + static_cast<int>(i));
    }
    TY_RETURN_IF_ERROR(communicator.AllReduce(absl::MakeSpan(values)));
    results[static_cast<size_t>(communicator.rank())] = values;
    return absl::OkStatus();
  });
  for (const std::vector<float>& result : results) EXPECT_EQ(result, results[0]);
}

TEST_P(CommunicatorTest, AllGatherConcatenatesInRankOrder) {
  ExpectAllOk([](Communicator& communicator) -> absl::Status {
    const auto ranks = static_cast<size_t>(communicator.world_size());
    const std::vector<float> block = Values(communicator.rank(), 257);
    std::vector<float> values(257 * ranks);
    TY_RETURN_IF_ERROR(communicator.AllGather(block, absl::MakeSpan(values)));
    for (size_t i = 0; i < values.size(); ++i) {
      TY_RETURN_IF_ERROR(
          Unless(values[i] == Value(static_cast<int>(i / 257), i % 257), "all_gather is wrong"));
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorTest, BroadcastCopiesFromEveryRoot) {
  ExpectAllOk([](Communicator& communicator) -> absl::Status {
    for (int root = 0; root < communicator.world_size(); ++root) {
      std::vector<float> values = Values(communicator.rank(), 777);
      TY_RETURN_IF_ERROR(communicator.Broadcast(absl::MakeSpan(values), root));
      TY_RETURN_IF_ERROR(Unless(values == Values(root, 777), "broadcast is wrong"));
    }
    return absl::OkStatus();
  });
}

// Returns the size of the data of `from` for `to`: nothing, little, or much, and always nothing for
// itself.
size_t PartSize(int from, int to) {
  constexpr size_t kSizes[] = {0, 1, 17, 4096, 300001};
  return kSizes[static_cast<size_t>(3 * from + 2 * to) % 5];
}

// Element i of the data of `from` for `to`.
float PartValue(int from, int to, size_t i) {
  return static_cast<float>(from * 1000 + to * 100 + static_cast<int>(i % 89));
}

TEST_P(CommunicatorTest, AllToAllBringsPartsOfAllSizesToTheirRanks) {
  ExpectAllOk([](Communicator& communicator) -> absl::Status {
    const int me = communicator.rank();
    std::vector<std::vector<float>> sent, received;
    std::vector<absl::Span<const float>> send;
    std::vector<absl::Span<float>> receive;
    for (int peer = 0; peer < communicator.world_size(); ++peer) {
      std::vector<float>& part = sent.emplace_back(PartSize(me, peer));
      for (size_t i = 0; i < part.size(); ++i) part[i] = PartValue(me, peer, i);
      received.emplace_back(PartSize(peer, me));
    }
    send.assign(sent.begin(), sent.end());
    receive.reserve(received.size());
    for (std::vector<float>& part : received) receive.push_back(absl::MakeSpan(part));
    for (int round = 0; round < 3; ++round) {
      for (std::vector<float>& part : received) std::fill(part.begin(), part.end(), -1.0F);
      TY_RETURN_IF_ERROR(communicator.AllToAll(send, receive));
      for (int peer = 0; peer < communicator.world_size(); ++peer) {
        for (size_t i = 0; i < receive[static_cast<size_t>(peer)].size(); ++i) {
          TY_RETURN_IF_ERROR(Unless(receive[static_cast<size_t>(peer)][i] == PartValue(peer, me, i),
                                    "all_to_all is wrong"));
        }
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorTest, AllToAllWithoutAnythingIsStillInStep) {
  ExpectAllOk([](Communicator& communicator) -> absl::Status {
    const auto ranks = static_cast<size_t>(communicator.world_size());
    const std::vector<absl::Span<const float>> send(ranks);
    const std::vector<absl::Span<float>> receive(ranks);
    TY_RETURN_IF_ERROR(communicator.AllToAll(send, receive));
    const absl::Status wrong = communicator.AllToAll(absl::MakeSpan(send).subspan(1), receive);
    TY_RETURN_IF_ERROR(Unless(ErrorReason(wrong) == "COLLECTIVE_MISMATCH", wrong.ToString()));
    return Meet(communicator);
  });
}

// Each rank sends to the next one, and the last one to the first, in an order in which they do not
// wait in a circle.
TEST_P(CommunicatorTest, MessagesReachTheirRanksInOrder) {
  ExpectAllOk([](Communicator& communicator) -> absl::Status {
    const int me = communicator.rank(), ranks = communicator.world_size();
    if (ranks == 1) return absl::OkStatus();
    const int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
    for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}, size_t{65536}, size_t{200001}}) {
      const std::vector<float> values = Values(me, size);
      std::vector<float> received(size);
      if (me != 0) TY_RETURN_IF_ERROR(communicator.Receive(absl::MakeSpan(received), before));
      TY_RETURN_IF_ERROR(communicator.Send(values, next));
      if (me == 0) TY_RETURN_IF_ERROR(communicator.Receive(absl::MakeSpan(received), before));
      TY_RETURN_IF_ERROR(Unless(received == Values(before, size), "a message is wrong"));
      // Collectives continue as usual between messages.
      TY_RETURN_IF_ERROR(Meet(communicator));
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorTest, MessagesConcernTwoRanksAlone) {
  ExpectAllOk([](Communicator& communicator) -> absl::Status {
    const int me = communicator.rank();
    std::vector<float> values = Values(1, 3000);
    // The first two ranks talk, and count their messages; the others have gone on meanwhile.
    for (int i = 0; i < 5 && communicator.world_size() > 1; ++i) {
      std::vector<float> received(values.size());
      if (me == 1) TY_RETURN_IF_ERROR(communicator.Send(values, 0));
      if (me == 0) {
        TY_RETURN_IF_ERROR(communicator.Receive(absl::MakeSpan(received), 1));
        TY_RETURN_IF_ERROR(Unless(received == values, "a message is wrong"));
      }
    }
    return communicator.AllReduce(absl::MakeSpan(values));
  });
}

TEST_P(CommunicatorTest, ThereAreNoMessagesToOneselfOrToNobody) {
  ExpectAllOk([](Communicator& communicator) -> absl::Status {
    std::vector<float> values(3);
    for (const int peer : {-1, communicator.rank(), communicator.world_size()}) {
      const absl::Status sent = communicator.Send(values, peer);
      TY_RETURN_IF_ERROR(Unless(ErrorReason(sent) == "COLLECTIVE_MISMATCH", sent.ToString()));
      const absl::Status received = communicator.Receive(absl::MakeSpan(values), peer);
      TY_RETURN_IF_ERROR(
          Unless(ErrorReason(received) == "COLLECTIVE_MISMATCH", received.ToString()));
    }
    return Meet(communicator);
  });
}

TEST_P(CommunicatorTest, ManyCallsInARowKeepTheirOrder) {
  ExpectAllOk([](Communicator& communicator) -> absl::Status {
    const int ranks = communicator.world_size();
    for (int i = 0; i < 200; ++i) {
      std::vector<float> values = {static_cast<float>(i), 1};
      TY_RETURN_IF_ERROR(communicator.AllReduce(absl::MakeSpan(values)));
      TY_RETURN_IF_ERROR(Unless(values[0] == static_cast<float>(i * ranks), "sums were mixed up"));
      if (i % 10 == 0) TY_RETURN_IF_ERROR(Meet(communicator));
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorTest, SizesThatDoNotFitAreRefusedBeforeAnythingIsSent) {
  ExpectAllOk([](Communicator& communicator) -> absl::Status {
    std::vector<float> values(static_cast<size_t>(communicator.world_size()) * 2 + 1);
    std::vector<float> block(2);
    const absl::Status status = communicator.AllGather(block, absl::MakeSpan(values));
    TY_RETURN_IF_ERROR(Unless(ErrorReason(status) == "COLLECTIVE_MISMATCH", status.ToString()));
    const absl::Status root = communicator.Broadcast(absl::MakeSpan(block), 99);
    return Unless(ErrorReason(root) == "COLLECTIVE_MISMATCH", root.ToString());
  });
}

TEST_P(CommunicatorLossTest, ALostRankIsNamedWithOperationAndSequence) {
  const auto statuses = RunGang(GetParam(), 2, [](Communicator& communicator) -> absl::Status {
    std::vector<float> values(1000, 1);
    TY_RETURN_IF_ERROR(communicator.AllReduce(absl::MakeSpan(values)));
    if (communicator.rank() == 1) return absl::OkStatus();  // leaves, and its communicator with it
    return communicator.AllReduce(absl::MakeSpan(values));
  });
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_EQ(ErrorReason(statuses[0]), "PEER_LOST") << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()),
              HasSubstr("rank 0: all_reduce 2: rank 1 was lost"));
  EXPECT_EQ(BlameOf(statuses[0]), (Blame{.peer = 1, .operation = "all_reduce", .sequence = 2}));
}

TEST_P(CommunicatorLossTest, ALostSenderIsNamedAfterItsLastMessage) {
  const auto statuses = RunGang(GetParam(), 2, [](Communicator& communicator) -> absl::Status {
    std::vector<float> values(1000, 1);
    if (communicator.rank() == 1) return communicator.Send(values, 0);
    TY_RETURN_IF_ERROR(communicator.Receive(absl::MakeSpan(values), 1));
    return communicator.Receive(absl::MakeSpan(values), 1);
  });
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_EQ(ErrorReason(statuses[0]), "PEER_LOST") << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 0: receive 2: rank 1 was lost"));
}

TEST_P(CommunicatorLossTest, ARankLostInAnAllToAllIsNamed) {
  const auto statuses = RunGang(GetParam(), 2, [](Communicator& communicator) -> absl::Status {
    if (communicator.rank() == 1) return absl::OkStatus();
    const std::vector<float> values(1000, 1);
    std::vector<float> received(1000);
    return communicator.AllToAll({absl::Span<const float>(), values},
                                 {absl::Span<float>(), absl::MakeSpan(received)});
  });
  EXPECT_THAT(std::string(statuses[0].message()),
              StartsWith("rank 0: all_to_all 1: rank 1 was lost"));
}

TEST_P(CommunicatorFaultTest, AMessageThatNobodySendsTimesOut) {
  absl::Notification gave_up;
  const auto statuses = RunGang(
      GetParam(), 2,
      [&gave_up](Communicator& communicator) -> absl::Status {
        std::vector<float> values(10);
        if (communicator.rank() == 1) {
          gave_up.WaitForNotification();
          return absl::OkStatus();
        }
        absl::Status status = communicator.Receive(absl::MakeSpan(values), 1);
        gave_up.Notify();
        return status;
      },
      absl::Milliseconds(100));
  EXPECT_TRUE(absl::IsDeadlineExceeded(statuses[0])) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 0: receive 1: "));
}

TEST_P(CommunicatorFaultTest, PartsThatDoNotFitAreAnError) {
  const auto statuses = RunGang(
      GetParam(), 2,
      [](Communicator& communicator) -> absl::Status {
        const auto peer = static_cast<size_t>(1 - communicator.rank());
        const std::vector<float> values(communicator.rank() == 0 ? 100 : 50);
        std::vector<float> received(100);
        std::vector<absl::Span<const float>> send(2);
        std::vector<absl::Span<float>> receive(2);
        send[peer] = values;
        receive[peer] = absl::MakeSpan(received);
        // Rank 0 waits for 100 elements where rank 1 has 50.
        TY_RETURN_IF_ERROR(communicator.AllToAll(send, receive));
        return Meet(communicator);
      },
      absl::Milliseconds(200));
  EXPECT_FALSE(statuses[0].ok());
  EXPECT_FALSE(statuses[1].ok());
}

TEST_P(CommunicatorFaultTest, AStuckRankTimesOut) {
  const auto statuses = RunGang(
      GetParam(), 2,
      [](Communicator& communicator) -> absl::Status {
        std::vector<float> values(10, 1);
        // Rank 1 skips a collective and asks for one that rank 0 never joins.
        if (communicator.rank() == 1) return communicator.AllReduce(absl::MakeSpan(values));
        return Meet(communicator);
      },
      absl::Milliseconds(200));
  EXPECT_FALSE(statuses[0].ok());
  EXPECT_FALSE(statuses[1].ok());
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 0: all_gather 1: "));
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("rank 1: all_reduce 1: "));
}

TEST_P(CommunicatorFaultTest, ARankThatComesTooLateIsTimedOut) {
  const auto statuses = RunGang(
      GetParam(), 2,
      [](Communicator& communicator) -> absl::Status {
        std::vector<float> values(10, 1);
        if (communicator.rank() == 0) return communicator.AllReduce(absl::MakeSpan(values));
        // Rank 0 gives up after its timeout and breaks the gang: rank 1 learns it in whatever it
        // does next.
        absl::Status status;
        communicator.set_timeout(absl::Seconds(20));
        while (status.ok()) status = Meet(communicator);
        return status;
      },
      absl::Milliseconds(100));
  EXPECT_FALSE(statuses[0].ok());
  EXPECT_FALSE(statuses[1].ok());
}

TEST_P(CommunicatorFaultTest, RanksThatDisagreeOnTheSizeGetErrors) {
  const auto statuses = RunGang(
      GetParam(), 2,
      [](Communicator& communicator) -> absl::Status {
        std::vector<float> values(communicator.rank() == 0 ? 100 : 200, 1);
        return communicator.AllReduce(absl::MakeSpan(values));
      },
      absl::Milliseconds(200));
  EXPECT_FALSE(statuses[0].ok());
  EXPECT_FALSE(statuses[1].ok());
}

TEST_P(CommunicatorFaultTest, ABrokenCommunicatorStaysBroken) {
  const auto statuses = RunGang(
      GetParam(), 2,
      [](Communicator& communicator) -> absl::Status {
        std::vector<float> values(10, 1);
        if (communicator.rank() == 1) return absl::OkStatus();
        EXPECT_FALSE(communicator.AllReduce(absl::MakeSpan(values)).ok());
        return Meet(communicator);
      },
      absl::Milliseconds(500));
  EXPECT_FALSE(statuses[0].ok());
}

}  // namespace trainyard::parallel
