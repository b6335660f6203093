// Loaded into Azurite by tests/azurite.py: what Azure does and Azurite 3.35 does not.
const { createHmac } = require("crypto");
const path = require("path");
const here = (file) => require(path.join(path.dirname(process.argv[1]), file));

// User delegation SAS of newer versions sign two more fields, the headers and query parameters that
// a request must have (azure-storage-blob, _shared_access_signature.py: _sts_srh, _sts_srq).
const values = here("authentication/IBlobSASSignatureValues.js");
const known = values.generateBlobSASSignatureWithUDK;
const OVERRIDES = 5; // headers of the answer, at the end of what is signed
values.generateBlobSASSignatureWithUDK = (sas, resource, account, key) => {
  const [signature, text] = known(sas, resource, account, key);
  if (sas.version <= "2025-11-05") return [signature, text];
  const fields = text.split("\n");
  fields.splice(-OVERRIDES, 0, "", "");
  const longer = fields.join("\n");
  return [createHmac("sha256", key).update(longer, "utf8").digest("base64"), longer];
};

if (process.env.REFUSE_KEYS) {
  const StorageError = here("errors/StorageError.js").default;
  const refuse = (status, code, text, id) => {
    throw new StorageError(status, code, text, id);
  };

  // allowSharedKeyAccess is false: neither the key nor a SAS that it signed is taken
  // (Microsoft, Prevent Shared Key authorization for an Azure Storage account).
  const keyless = (isKey) => (Class) => {
    const validate = Class.prototype.validate;
    Class.prototype.validate = async function (req, context) {
      if (isKey(req)) {
        const text = "Key based authentication is not permitted on this storage account.";
        refuse(403, "KeyBasedAuthenticationNotPermitted", text, context.contextId);
      }
      return validate.call(this, req, context);
    };
  };
  keyless((req) => /^SharedKey/.test(req.getHeader("authorization") || ""))(
    here("authentication/BlobSharedKeyAuthenticator.js").default,
  );
  keyless((req) => req.getQuery("sig") && !req.getQuery("skoid"))(
    here("authentication/BlobSASAuthenticator.js").default,
  );

  // Get User Delegation Key: start and end lie within seven days of now.
  const Service = here("handlers/ServiceHandler.js").default;
  const ask = Service.prototype.getUserDelegationKey;
  Service.prototype.getUserDelegationKey = async function (info, options, context) {
    const week = 7 * 86400e3;
    const start = new Date(info.start || Date.now());
    const end = new Date(info.expiry);
    if (!(start < end && end - Date.now() <= week && Date.now() - start <= week)) {
      refuse(400, "InvalidXmlNodeValue", "The key's start and end are out of range.", context.contextId);
    }
    return ask.call(this, info, options, context);
  };
}
