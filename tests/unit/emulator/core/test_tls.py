"""The certificate that the emulator makes for itself."""

from pathlib import Path

from cryptography import x509

from emulator.core.tls import certificates


def test_the_certificate_holds_for_every_name_that_it_is_reached_by(tmp_path: Path) -> None:
    _, server = certificates(tmp_path, "emulator")
    certificate = x509.load_pem_x509_certificates(server.read_bytes())[0]
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["localhost", "emulator"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
