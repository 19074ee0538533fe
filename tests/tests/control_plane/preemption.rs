//! Preemption for devices on the real scheduler: pods of lower priority leave, and the pod for which they
//! leave is bound to their devices.

mod cases;
mod crashes;
mod race;
mod random;
mod site;

use tests::suite::Test;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        cases::a_pod_gets_the_devices_of_one_pod_of_lower_priority,
        cases::nobody_is_evicted_in_a_dry_run,
        cases::pods_of_a_budget_are_not_evicted,
        cases::a_budget_that_comes_later_is_kept,
        cases::victims_are_where_the_volume_is,
        cases::hand_written_claims_preempt_too,
        cases::a_gang_gets_room_together_or_not_at_all,
        cases::a_pod_that_may_move_makes_room,
        cases::preemptor_moves_pods_if_it_is_allowed_to,
        cases::devices_that_are_only_kept_by_rules_are_released,
        crashes::whenever_the_leader_dies_the_pod_is_bound,
        race::pods_that_lose_the_race_preempt_again,
        random::every_eviction_leads_to_an_aligned_pod,
    ];
    all.into_iter().map(Test::alone).collect()
}
