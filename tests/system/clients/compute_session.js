// The JavaScript SDK on the emulator: a scale set from its first PUT to its end.
// `node compute_session.js PACKAGES ARM_URL TENANT SUBSCRIPTION`, run by tests/system/javascript.py.
const assert = require("node:assert/strict");
const path = require("node:path");
const { createRequire } = require("node:module");

const [packages, arm, tenant, subscription] = process.argv.slice(2);
const from = createRequire(path.join(packages, "package.json"));
const { ClientSecretCredential } = from("@azure/identity");
const { ComputeManagementClient } = from("@azure/arm-compute");

const GROUP = "js";
const NAME = "rk-js";
const EVICTED = 45_000; // ms; the notice is 2 s here
const scaleSet = {
  location: "eastus",
  sku: { name: "Standard_ND96amsr_A100_v4", tier: "Standard", capacity: 2 },
  orchestrationMode: "Uniform",
  singlePlacementGroup: true,
  overprovision: false,
  upgradePolicy: { mode: "Manual" },
  virtualMachineProfile: {
    priority: "Spot",
    evictionPolicy: "Delete",
    billingProfile: { maxPrice: -1 },
    osProfile: {
      computerNamePrefix: "rkjs",
      adminUsername: "rekindle",
      customData: Buffer.from("#cloud-config\n").toString("base64"),
      linuxConfiguration: {
        disablePasswordAuthentication: true,
        ssh: {
          publicKeys: [{ path: "/home/rekindle/.ssh/authorized_keys", keyData: "ssh-rsa AAAA js" }],
        },
      },
    },
    storageProfile: {
      imageReference: { publisher: "microsoft-dsvm", offer: "ubuntu-hpc", sku: "2204", version: "latest" },
      osDisk: { createOption: "FromImage", caching: "ReadOnly", diffDiskSettings: { option: "Local" } },
    },
    networkProfile: {
      networkInterfaceConfigurations: [
        {
          name: "nic",
          primary: true,
          ipConfigurations: [
            {
              name: "ip",
              subnet: {
                id: `/subscriptions/${subscription}/resourceGroups/${GROUP}/providers/Microsoft.Network/virtualNetworks/n/subnets/nodes`,
              },
            },
          ],
        },
      ],
    },
  },
};

async function listed(pages) {
  const rows = [];
  for await (const row of pages) rows.push(row);
  return rows;
}

async function step(said, action) {
  console.log(`> ${said}`);
  const answer = await action();
  console.log(`  ${JSON.stringify(answer) ?? "done"}`);
  return answer;
}

async function main() {
  const credential = new ClientSecretCredential(tenant, "tests", "any", {
    authorityHost: arm,
    disableInstanceDiscovery: true,
  });
  const client = new ComputeManagementClient(credential, subscription, {
    endpoint: arm,
    credentials: { scopes: [`${arm}/.default`] },
  });
  const sets = client.virtualMachineScaleSets;
  const machines = client.virtualMachineScaleSetVMs;
  const ids = async () => (await listed(machines.list(GROUP, NAME))).map((vm) => vm.instanceId);

  const made = await step(`virtualMachineScaleSets.createOrUpdate ${NAME}, 2 Spot machines`, async () => {
    const set = await sets.createOrUpdate(GROUP, NAME, scaleSet);
    return { state: set.provisioningState, mode: set.orchestrationMode, capacity: set.sku.capacity };
  });
  assert.deepEqual(made, { state: "Succeeded", mode: "Uniform", capacity: 2 });

  const scaled = await step("virtualMachineScaleSets.update to 3 machines", async () => {
    const set = await sets.update(GROUP, NAME, { sku: { ...scaleSet.sku, capacity: 3 } });
    return { capacity: set.sku.capacity, instances: await ids() };
  });
  assert.deepEqual(scaled, { capacity: 3, instances: ["0", "1", "2"] });

  const one = await step("virtualMachineScaleSetVMs.get 0", async () => {
    const vm = await machines.get(GROUP, NAME, "0", { expand: "instanceView" });
    const codes = vm.instanceView.statuses.map((status) => status.code);
    return { computerName: vm.osProfile.computerName, codes, created: vm.timeCreated instanceof Date };
  });
  assert.equal(one.computerName, "rkjs000000");
  assert.ok(one.codes.includes("ProvisioningState/succeeded") && one.created);

  await step("virtualMachineScaleSetVMs.restart 1", () => machines.restart(GROUP, NAME, "1"));

  await step("virtualMachineScaleSetVMs.simulateEviction 2", () => machines.simulateEviction(GROUP, NAME, "2"));
  const left = await step("virtualMachineScaleSetVMs.list until it is gone", async () => {
    const deadline = Date.now() + EVICTED;
    let rows = await ids();
    while (rows.length > 2 && Date.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, 200));
      rows = await ids();
    }
    return rows;
  });
  assert.deepEqual(left, ["0", "1"]);

  await step("virtualMachineScaleSets.deleteInstances 1", () =>
    sets.deleteInstances(GROUP, NAME, { instanceIds: ["1"] }),
  );
  await step("virtualMachineScaleSets.delete", () => sets.delete(GROUP, NAME));
  const refused = await step("virtualMachineScaleSets.get", () =>
    sets.get(GROUP, NAME).then(
      () => null,
      (error) => ({ status: error.statusCode, code: error.code }),
    ),
  );
  assert.deepEqual(refused, { status: 404, code: "ResourceNotFound" });
  console.log("javascript: ok");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
