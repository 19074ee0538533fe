//! Jobs on one fabric: gangs as real controllers make them, on nodes of several
//! placement groups, under the real scheduler.

mod campaign;
mod compute_domains;
mod controllers;
mod faults;
mod foreign;
mod gangs;
mod heal;
mod levels;
mod operators;
mod pod_groups;
mod racks;
pub(crate) mod site;
mod workloads;

use tests::suite::Test;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        gangs::two_gangs_on_two_fabrics_both_run,
        gangs::a_gang_that_fits_nowhere_waits_as_a_whole,
        gangs::recreated_pods_join_the_rest_of_their_gang,
        gangs::every_controllers_pods_are_a_group,
        compute_domains::a_job_gets_a_compute_domain_that_ends_with_it,
        compute_domains::a_refused_compute_domain_is_reported,
        heal::a_gang_whose_room_is_gone_says_so,
        heal::a_gang_whose_room_is_gone_moves,
        levels::pods_share_the_domain_of_their_level,
        foreign::hyper_nodes_and_topologies_are_levels,
        levels::sources_that_disagree_are_reported_on_the_node,
        operators::the_examples_of_operators_run,
        pod_groups::the_scheduler_places_a_group_with_a_topology_constraint,
        pod_groups::the_scheduler_places_groups_by_the_controllers_pod_groups,
        pod_groups::groups_with_pod_groups_of_their_workload_are_joined,
        pod_groups::no_group_is_placed_where_the_constraint_is_dropped,
        faults::whenever_the_leader_dies_no_group_is_split,
        workloads::examples_of_workloads_run,
        campaign::random_gangs_are_never_split_and_all_run,
        racks::random_jobs_on_racks_stay_whole,
        campaign::the_gates_of_a_large_gang_are_removed_together,
    ];
    all.into_iter().map(Test::alone).collect()
}
