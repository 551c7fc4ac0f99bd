//! Flow control and priorities of the network interfaces of RoCE ports: PFC and the priorities of
//! DSCP values over the DCB interface of the kernel, ECN and CNPs from the files of mlx5.

use serde_json::Value;

use super::dcb_output::DcbOutput;
use super::root::Root;

/// Number of priorities.
const PRIORITIES: u8 = 8;

/// The configuration of an interface. Fields are `None` if they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dcb {
    /// The priorities with PFC.
    pub pfc: Option<Vec<u8>>,
    /// Priorities by DSCP value. The adapter trusts DSCP if there are any.
    pub dscp: Option<Vec<(u8, u8)>>,
    /// The field that selects the priority of a received packet: `dscp` or `pcp`.
    pub trust: Option<String>,
    /// The priorities for which the adapter sends CNPs (notification point).
    pub ecn_np: Option<Vec<u8>>,
    /// The priorities for which the adapter reduces its rate (reaction point).
    pub ecn_rp: Option<Vec<u8>>,
    /// The DSCP value of CNPs.
    pub cnp_dscp: Option<u8>,
    /// The priority of CNPs.
    pub cnp_priority: Option<u8>,
    /// The traffic class that rdma_cm sets by default.
    pub cm_traffic_class: Option<u8>,
    /// The traffic class that the driver sets for all queue pairs.
    pub forced_traffic_class: Option<u8>,
}

impl Dcb {
    /// Reads the configuration of the interface of a port.
    pub(crate) fn read(
        root: &Root,
        outputs: &[DcbOutput],
        device: &str,
        port: u32,
        netdev: &str,
    ) -> Self {
        let output = outputs.iter().find(|output| output.netdev == netdev);
        let json =
            |text: &Option<String>| -> Option<Value> { serde_json::from_str(text.as_ref()?).ok() };
        let pfc = output.and_then(|output| json(&output.pfc));
        let app = output.and_then(|output| json(&output.app));
        let net = format!("/sys/class/net/{netdev}");
        let enabled = |point: &str| {
            let values: Vec<Option<u8>> = (0..PRIORITIES)
                .map(|n| root.number(&format!("{net}/ecn/{point}/enable/{n}")))
                .collect();
            let is_known = values.iter().any(Option::is_some);
            let priorities = (0..).zip(values).filter(|(_, value)| *value == Some(1));
            is_known.then(|| priorities.map(|(priority, _)| priority).collect())
        };
        // The file has lines such as `Global tclass=106`.
        let file = format!("/sys/class/infiniband/{device}/tc/{port}/traffic_class");
        let forced = root.value(&file).and_then(|text| {
            let global = text
                .lines()
                .find_map(|line| line.strip_prefix("Global tclass="));
            global.unwrap_or(&text).trim().parse().ok()
        });
        Self {
            pfc: pfc.and_then(|pfc| priorities(&pfc)),
            dscp: app.map(|app| dscp_map(&app)),
            trust: root.value(&format!("{net}/qos/trust")),
            ecn_np: enabled("roce_np"),
            ecn_rp: enabled("roce_rp"),
            cnp_dscp: root.number(&format!("{net}/ecn/roce_np/cnp_dscp")),
            cnp_priority: root.number(&format!("{net}/ecn/roce_np/cnp_802p_prio")),
            cm_traffic_class: root.number(&format!(
                "/sys/kernel/config/rdma_cm/{device}/ports/{port}/default_roce_tos"
            )),
            forced_traffic_class: forced,
        }
    }

    /// Returns the DSCP value of RDMA packets.
    pub fn data_dscp(&self) -> Option<u8> {
        let class = self.forced_traffic_class.filter(|class| *class > 0);
        Some(class.or(self.cm_traffic_class)? >> 2)
    }

    /// Returns `true` if the adapter selects priorities by DSCP.
    pub fn trusts_dscp(&self) -> Option<bool> {
        match (&self.trust, &self.dscp) {
            (Some(trust), _) => Some(trust == "dscp"),
            (None, Some(map)) => Some(!map.is_empty()),
            (None, None) => None,
        }
    }

    /// Returns the priority of packets with a DSCP value. By default it is the value's upper three
    /// bits.
    pub fn priority(&self, dscp: u8) -> Option<u8> {
        if !self.trusts_dscp()? {
            // Packets without a VLAN tag have no other priority.
            return Some(0);
        }
        let map = self.dscp.iter().flatten();
        let mut mapped = map.filter(|(value, _)| *value == dscp);
        Some(mapped.next().map_or(dscp >> 3, |(_, priority)| *priority))
    }
}

/// Returns the priorities with PFC in the output of `dcb`.
fn priorities(pfc: &Value) -> Option<Vec<u8>> {
    let flags = pfc.get("prio_pfc")?.as_array()?;
    let on = (0..)
        .zip(flags)
        .filter(|(_, flag)| flag.as_bool() == Some(true));
    Some(on.map(|(priority, _)| priority).collect())
}

/// Returns the priorities of DSCP values in the output of `dcb`.
fn dscp_map(app: &Value) -> Vec<(u8, u8)> {
    let rows = app.get("dscp_prio").and_then(Value::as_array);
    let number = |value: &Value| u8::try_from(value.as_u64()?).ok();
    let pair = |row: &Value| Some((number(row.get(0)?)?, number(row.get(1)?)?));
    rows.into_iter().flatten().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_dcb_is_parsed() {
        let text = r#"{"pfc_cap":8,"macsec_bypass":false,"delay":0,"prio_pfc":[false,false,false,true,false,false,false,false],"requests":[0,0,0,0,0,0,0,0],"indications":[0,0,0,0,0,0,0,0]}"#;
        let parse = |text| serde_json::from_str(text).unwrap();
        assert_eq!(priorities(&parse(text)), Some(vec![3]));
        assert_eq!(
            dscp_map(&parse(r#"{"dscp_prio":[[26,3],[48,6]]}"#)),
            [(26, 3), (48, 6)]
        );
        assert_eq!(dscp_map(&parse("{}")), []);
        for invalid in ["[]", "{}", r#"{"prio_pfc":3}"#] {
            assert_eq!(priorities(&parse(invalid)), None);
        }
    }

    #[test]
    fn priority_follows_the_trusted_field() {
        let dcb = |trust: Option<&str>, dscp: Option<Vec<(u8, u8)>>| Dcb {
            trust: trust.map(str::to_owned),
            dscp,
            ..Dcb::default()
        };
        assert_eq!(dcb(None, None).priority(26), None);
        assert_eq!(dcb(Some("pcp"), None).priority(26), Some(0));
        assert_eq!(dcb(Some("dscp"), None).priority(26), Some(3));
        assert_eq!(dcb(None, Some(vec![(26, 5)])).priority(26), Some(5));
        assert_eq!(dcb(None, Some(Vec::new())).priority(26), Some(0));
    }
}
