// SPDX-License-Identifier: Apache-2.0
// What the cpu's operations really differ by from the reference on all golden models, beside what
// eval/site_tolerance.hpp allows them: one line for each operation, on equal inputs and on the
// cpu's own rows. Half used up is worth a look; more than all of it is a failure.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "eval/check.hpp"
#include "golden_models.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

struct Worst {
  double error = 0, share = 0;
  std::string where;
  std::size_t sites = 0;
};

void add(const eval::SiteReport& site, const std::string& variant,
         std::map<std::string, Worst>& worst) {
  Worst& of = worst[site.site.operation];
  ++of.sites;
  of.error = std::max(of.error, site.distance.max_error());
  const double share = std::isnan(site.of_tolerance()) ? HUGE_VAL : site.of_tolerance();
  if (share <= of.share) return;
  of.share = share;
  of.where = variant + ": " + site.site.name;
}

TEST(MeasuredTolerances, AreKeptByEveryOperation) {
  std::vector<std::filesystem::path> folders = own_goldens();
  for (const std::string& variant : golden_variants())
    if (const auto folder = find_data("goldens/" + variant)) folders.push_back(*folder);
  for (const bool forced : {true, false}) {
    std::map<std::string, Worst> worst;
    for (const std::filesystem::path& folder : folders) {
      const Golden golden = read_golden(folder);
      eval::ModelRun reference({.path = golden.model, .backend = BackendKind::kReference});
      eval::ModelRun cpu({.path = golden.model, .threads = 1});
      const eval::CheckReport report = eval::check(
          reference, cpu, golden.tokens, {.teacher_forced = forced, .generated_from = 30});
      const std::string variant =
          folder.parent_path().filename().string() + "/" + folder.filename().string();
      for (const eval::SiteReport& site : report.sites) add(site, variant, worst);
    }
    std::printf("[ measured ] cpu against reference over %zu models, %s\n", folders.size(),
                forced ? "each operation on equal inputs" : "each on its own rows");
    std::printf("[ measured ] %-18s %6s %10s %9s  %s\n", "operation", "sites", "max error",
                "of allowed", "where most is used");
    for (const auto& [operation, of] : worst) {
      std::printf("[ measured ] %-18s %6zu %10.1e %9.3f%s  %s\n", operation.c_str(), of.sites,
                  of.error, of.share, of.share > 0.5 ? "!" : " ", of.where.c_str());
      EXPECT_LE(of.share, 1.0) << operation << " at " << of.where;
    }
    // Every operation that writes rows, the head, and none that no test looks at.
    EXPECT_GE(worst.size(), 20u);
  }
}

}  // namespace
}  // namespace lemma::test
